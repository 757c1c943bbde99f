//! Snapshots of the help texts. After an intended change: `INSTA_UPDATE=always cargo test -p dueline-cli --test help`.

fn help(words: &[&str]) -> String {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_dueline"));
    // The help must not depend on the terminal or the environment of the test.
    let output = command
        .env_clear()
        .args(words)
        .arg("--help")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_of_the_program() {
    insta::assert_snapshot!(help(&[]));
}

#[test]
fn help_of_demo() {
    insta::assert_snapshot!(help(&["demo"]));
}

#[test]
fn help_of_job_apply() {
    insta::assert_snapshot!(help(&["job", "apply"]));
}

#[test]
fn help_of_task() {
    insta::assert_snapshot!(help(&["task"]));
}

#[test]
fn help_of_task_submit() {
    insta::assert_snapshot!(help(&["task", "submit"]));
}

#[test]
fn help_of_task_list() {
    insta::assert_snapshot!(help(&["task", "list"]));
}

#[test]
fn help_of_schedule_next() {
    insta::assert_snapshot!(help(&["schedule", "next"]));
}

#[test]
fn the_help_lists_every_exit_code() {
    let help = help(&[]);
    for exit in dueline_cli::exit::Exit::ALL {
        let line = format!("  {}  {}", exit.code(), exit.meaning());
        assert!(help.contains(&line), "'{line}' is not in:\n{help}");
    }
}

#[test]
fn the_help_of_frequent_commands_has_examples_that_parse() {
    for words in [
        &["job", "apply"][..],
        &["task", "submit"],
        &["task", "list"],
        &["task", "wait"],
        &["serve"],
    ] {
        let help = help(words);
        let (_, examples) = help.split_once("\nExample").expect("examples");
        let examples: Vec<_> = examples
            .lines()
            .filter(|line| line.trim().starts_with("dueline "))
            .collect();
        assert!(!examples.is_empty());
        for example in examples {
            let first = example.split(';').next().unwrap_or_default();
            // No server listens, so a command line without a fault fails as unavailable, or prints the settings.
            let script = format!(
                "dueline() {{ \"$DUELINE\" \"$@\" --server http://127.0.0.1:9 {}; }}; {}",
                if words == ["serve"] {
                    "--print-config"
                } else {
                    ""
                },
                if example.contains("read -r") {
                    example
                } else {
                    first
                },
            );
            let home = tempfile::tempdir().unwrap();
            std::fs::write(home.path().join("tasks.ndjson"), "{}\n").unwrap();
            let mut command = assert_cmd::Command::new("sh");
            command
                .args(["-c", &script])
                .env("DUELINE", env!("CARGO_BIN_EXE_dueline"));
            let output = command.current_dir(home.path()).output().unwrap();
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 5)), "{example}: {output:?}");
        }
    }
}

/// The help of a role is that of its program, and `-h` as a value is no call for it.
#[test]
fn a_program_of_one_role_parses_its_own_command_line() {
    let run = |args: &[&str]| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_dueline-controller"));
        let output = command.env_clear().args(args).output().unwrap();
        let (stdout, stderr) = (output.stdout, output.stderr);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(stdout), text(stderr))
    };
    for args in [&["--help"][..], &["-h"], &["--jobs", "a", "-h"]] {
        let (code, stdout, _) = run(args);
        assert_eq!(code, Some(0));
        assert!(stdout.contains("Usage: dueline-controller [OPTIONS]"));
    }
    for args in [&["--version"][..], &["-V"]] {
        let (code, stdout, _) = run(args);
        assert_eq!(code, Some(0));
        assert!(stdout.starts_with("dueline-controller "), "{stdout}");
    }
    for args in [
        &["--request-timeout", "-h"][..],
        &["--queue", "-h"],
        &["--queue", "--version"],
        &["--nope"],
    ] {
        let (code, stdout, stderr) = run(args);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
    let (_, stdout, stderr) = run(&["--nope"]);
    assert!(
        stderr.contains("Usage: dueline-controller"),
        "{stdout}{stderr}"
    );
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_dueline"));
        let output = command.args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("redrive"), "{shell}");
    }
}
