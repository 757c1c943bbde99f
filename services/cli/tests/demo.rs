//! `dueline demo` as a user runs it.

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

/// A folder with sixty files that are hard to handle.
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

/// Everything in a folder.
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

/// The command line, with `temporary` as the folder for temporary files.
fn demo(input: &Path, temporary: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
    command
        .arg("demo")
        .arg("--input")
        .arg(input)
        .args(words)
        .env("TMPDIR", temporary)
        // A demo is the same everywhere.
        .env("DUELINE_WORKER_HANDLERS", "noop")
        .current_dir(temporary);
    command
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(mut command: Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ended {
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
fn a_demo_over_odd_files_goes_right_reads_only_and_leaves_nothing_behind() {
    let (input, temporary) = (odd_files(), tempfile::tempdir().unwrap());
    let before = contents(input.path());
    let ended = run(demo(input.path(), temporary.path(), &["--json"]));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(
        ended.summary(),
        json!({"files": FILES, "tasks": FILES, "succeeded": FILES, "failed": 0, "retried": FILES / 10,
               "mismatches": 0})
    );
    assert_eq!(ended.stdout.lines().count(), 1);
    assert!(
        ended.stderr.contains("it is a symbolic link"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("listening on http://127.0.0.1:"),
        "{}",
        ended.stderr
    );
    assert_eq!(contents(input.path()), before);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_command_that_lies_is_found_out() {
    let (input, temporary) = (odd_files(), tempfile::tempdir().unwrap());
    let lies = tempfile::tempdir().unwrap();
    let liar = lies.path().join("sha256sum");
    fs::write(&liar, "#!/bin/sh\ncat >/dev/null; echo 0000  -\n").unwrap();
    fs::set_permissions(&liar, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", lies.path().display());
    let mut command = demo(input.path(), temporary.path(), &[]);
    command.env("PATH", &path);
    let ended = run(command);
    assert_eq!(ended.code, Some(8), "{}{}", ended.stdout, ended.stderr);
    for part in [
        "the task said '0000'",
        "verified   20 mismatches",
        "line break ",
    ] {
        assert!(
            ended.stdout.contains(part),
            "'{part}' is not in:\n{}",
            ended.stdout
        );
    }
    let mut command = demo(input.path(), temporary.path(), &["--json"]);
    command.env("PATH", &path);
    let ended = run(command);
    assert_eq!(ended.code, Some(8));
    let summary = ended.summary();
    assert_eq!(
        (&summary["succeeded"], &summary["mismatches"]),
        (&json!(FILES), &json!(20))
    );
}

#[test]
fn people_get_tables_and_may_keep_the_store() {
    let (input, work) = (odd_files(), tempfile::tempdir().unwrap());
    let place = work.path().join("kept");
    let words = [
        "--keep",
        "--concurrency",
        "3",
        "--work",
        place.to_str().unwrap(),
    ];
    let ended = run(demo(input.path(), work.path(), &words));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let lines: Vec<Vec<&str>> = ended
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let ends_with = |end: &[&str]| lines.iter().any(|line| line.ends_with(end));
    for kind in ["checksum", "compress", "deliver"] {
        let row = lines.iter().find(|line| line.first() == Some(&kind));
        let row = row.unwrap_or_else(|| panic!("no {kind} in:\n{}", ended.stdout));
        assert_eq!(row[row.len() - 5..row.len() - 2], ["20", "20", "2"]);
    }
    assert!(
        ends_with(&["after", "their", "time,", "none", "before"]),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("6 of 6 tasks that had to fail once"),
        "{}",
        ended.stdout
    );
    let kept: Vec<_> = fs::read_dir(&place).unwrap().collect();
    let [Ok(kept)] = kept.as_slice() else {
        panic!("not one folder: {kept:?}");
    };
    assert!(kept.path().join("dueline.db").exists());
    assert!(
        ended.stderr.contains(kept.path().to_str().unwrap()),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_folder_without_files_is_an_invalid_request() {
    let (empty, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gone = empty.path().join("gone");
    for (input, what) in [(empty.path(), "there are no files"), (&gone, "cannot read")] {
        let ended = run(demo(input, temporary.path(), &[]));
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains(what), "{}", ended.stderr);
        assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
        let ended = run(demo(input, temporary.path(), &["--json"]));
        let problem: Value = serde_json::from_str(&ended.stderr).unwrap();
        assert_eq!(problem["kind"], "invalid");
    }
}

#[test]
fn an_interrupted_demo_stops_in_order_and_leaves_nothing_behind() {
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
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended");
    }
    // Some tasks are due a second from now at the earliest, so it cannot be done yet.
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
