//! `dueline demo`, run as a child process.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

const FILES: usize = 60;

/// A folder with sixty files, some with names and contents that are hard to handle.
fn odd_files() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let large: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    let odd: [(&str, &[u8]); 12] = [
        ("empty", b""),
        ("a file with spaces.txt", b"spaces"),
        ("größe – 大きさ.txt", "größe".as_bytes()),
        ("one mebibyte", &large),
        ("-n", b"looks like a flag"),
        ("$(exit 9)`exit 9`", b"looks like a command"),
        ("quote'\"", b"quotes"),
        ("line\nbreak", b"no end of line"),
        ("packed already.gz", b"no gzip at all"),
        (".hidden", b"hidden\0zero"),
        ("deep/er/and deeper/file", b"deep"),
        ("deep/*", b"looks like a pattern"),
    ];
    for (name, content) in odd {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for number in odd.len()..FILES {
        let path = home.path().join(format!("deep/{number}"));
        fs::write(path, "x".repeat(number * 100)).unwrap();
    }
    std::os::unix::fs::symlink("empty", home.path().join("link")).unwrap();
    home
}

/// The contents of all files in a folder, by path.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.display().to_string(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The command line of a demo, with `temporary` as the system's temporary folder.
fn demo(input: &Path, temporary: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
    command
        .arg("demo")
        .arg("--input")
        .arg(input)
        .args(args)
        .env("TMPDIR", temporary)
        // A demo ignores the environment.
        .env("DUELINE_WORKER_HANDLERS", "noop")
        .current_dir(temporary);
    command
}

struct ProgramOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(mut command: Command) -> ProgramOutput {
    let output = command.output().unwrap();
    ProgramOutput {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl ProgramOutput {
    #[track_caller]
    fn summary(&self) -> Value {
        let line = self.stdout.lines().last().expect("a last line");
        let mut summary: Value = serde_json::from_str(line).unwrap();
        let elapsed_ms = summary.as_object_mut().unwrap().remove("elapsed_ms");
        // Some tasks are due a second later.
        assert!(elapsed_ms.unwrap().as_u64().unwrap() >= 1_000);
        summary
    }
}

#[test]
fn a_demo_over_odd_files_succeeds_changes_no_input_and_removes_its_folder() {
    let (input, temporary) = (odd_files(), tempfile::tempdir().unwrap());
    let before = contents(input.path());
    let output = run(demo(input.path(), temporary.path(), &["--json"]));
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    assert_eq!(
        output.summary(),
        json!({"files": FILES, "tasks": FILES, "succeeded": FILES, "failed": 0, "retried": FILES / 10,
               "mismatches": 0, "steps": 3, "firings": 3})
    );
    assert_eq!(output.stdout.lines().count(), 1);
    assert!(
        output.stderr.contains("it is a symbolic link"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("listening on http://127.0.0.1:"),
        "{}",
        output.stderr
    );
    assert_eq!(contents(input.path()), before);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_command_with_wrong_results_is_a_mismatch() {
    let (input, temporary) = (odd_files(), tempfile::tempdir().unwrap());
    let bin = tempfile::tempdir().unwrap();
    let wrong_sha256sum = bin.path().join("sha256sum");
    fs::write(
        &wrong_sha256sum,
        "#!/bin/sh\ncat >/dev/null; echo 0000  -\n",
    )
    .unwrap();
    fs::set_permissions(&wrong_sha256sum, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", bin.path().display());
    let mut command = demo(input.path(), temporary.path(), &[]);
    command.env("PATH", &path);
    let output = run(command);
    assert_eq!(output.code, Some(8), "{}{}", output.stdout, output.stderr);
    for part in [
        "the task returned '0000'",
        "verified   21 mismatches",
        "line\\nbreak ",
    ] {
        assert!(
            output.stdout.contains(part),
            "'{part}' is not in:\n{}",
            output.stdout
        );
    }
    let mut command = demo(input.path(), temporary.path(), &["--json"]);
    command.env("PATH", &path);
    let output = run(command);
    assert_eq!(output.code, Some(8));
    let summary = output.summary();
    assert_eq!(
        (&summary["succeeded"], &summary["mismatches"]),
        (&json!(FILES), &json!(21))
    );
}

#[test]
fn the_text_output_is_a_table_and_keep_preserves_the_store() {
    let (input, work) = (odd_files(), tempfile::tempdir().unwrap());
    let parent = work.path().join("kept");
    let args = [
        "--keep",
        "--concurrency",
        "3",
        "--work",
        parent.to_str().unwrap(),
    ];
    let output = run(demo(input.path(), work.path(), &args));
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let lines: Vec<Vec<&str>> = output
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let ends_with = |end: &[&str]| lines.iter().any(|line| line.ends_with(end));
    for kind in ["checksum", "compress", "deliver"] {
        let row = lines.iter().find(|line| line.first() == Some(&kind));
        let row = row.unwrap_or_else(|| panic!("no {kind} in:\n{}", output.stdout));
        assert_eq!(row[row.len() - 5..row.len() - 2], ["20", "20", "2"]);
    }
    assert!(
        ends_with(&["after", "their", "due", "time,", "none", "before"]),
        "{}",
        output.stdout
    );
    for part in [
        "3 steps succeeded, each after the one before it",
        "3 firings, a second apart",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
    assert!(
        output
            .stdout
            .contains("6 of 6 tasks that failed once on purpose"),
        "{}",
        output.stdout
    );
    let kept: Vec<_> = fs::read_dir(&parent).unwrap().collect();
    let [Ok(kept)] = kept.as_slice() else {
        panic!("not one folder: {kept:?}");
    };
    assert!(kept.path().join("dueline.db").exists());
    assert!(
        output.stderr.contains(kept.path().to_str().unwrap()),
        "{}",
        output.stderr
    );
}

#[test]
fn a_folder_without_files_is_invalid() {
    let (empty, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let missing = empty.path().join("missing");
    for (input, what) in [
        (empty.path(), "there are no files"),
        (&missing, "cannot read"),
    ] {
        let output = run(demo(input, temporary.path(), &[]));
        assert_eq!(output.code, Some(2));
        assert!(output.stderr.contains(what), "{}", output.stderr);
        assert!(output.stderr.contains("hint: "), "{}", output.stderr);
        let output = run(demo(input, temporary.path(), &["--json"]));
        let problem: Value = serde_json::from_str(&output.stderr).unwrap();
        assert_eq!(problem["kind"], "invalid");
    }
}

#[test]
fn an_interrupted_demo_stops_gracefully_and_removes_its_folder() {
    let (input, temporary) = (odd_files(), tempfile::tempdir().unwrap());
    let mut command = demo(input.path(), temporary.path(), &["--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("listening") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the demo ended");
    }
    // Some tasks are due in a second at the earliest, so the demo cannot be done yet.
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5), "{rest}");
    assert!(rest.contains("nothing was verified"), "{rest}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}
