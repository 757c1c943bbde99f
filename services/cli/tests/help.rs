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
fn the_help_lists_every_exit_code() {
    let help = help(&[]);
    for exit in dueline_cli::exit::Exit::ALL {
        let line = format!("  {}  {}", exit.code(), exit.meaning());
        assert!(help.contains(&line), "'{line}' is not in:\n{help}");
    }
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
