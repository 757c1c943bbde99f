//! Settings of a server, and the defaults that its jobs get from them.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

/// A server process, killed when this value is dropped.
struct ServerProcess(Child, String);

impl ServerProcess {
    fn start(args: &[&str], home: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dueline"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn"])
            .args(args)
            .current_dir(home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        let address = address.expect("the address comes first").to_owned();
        Self(child, address)
    }

    fn run(&self, args: &[&str]) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_dueline"))
            .args(["--json", "--server", &self.1])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_without_timeouts_gets_those_of_the_servers_settings() {
    let home = tempfile::tempdir().unwrap();
    let settings = [
        "--set=defaults.enqueue_timeout_ms=41000",
        "--set=defaults.claim_timeout_ms=42000",
        "--set=defaults.heartbeat_timeout_ms=43000",
    ];
    let server = ServerProcess::start(&settings, home.path());
    server.run(&["job", "apply", "plain", "--command", "true"]);
    let job = server.run(&["job", "get", "plain"]);
    for (field, expected) in [
        ("enqueue_timeout_ms", 41_000),
        ("claim_timeout_ms", 42_000),
        ("heartbeat_timeout_ms", 43_000),
        ("heartbeat_increment_ms", 43_000),
    ] {
        assert_eq!(job[field], expected, "{field} of {job}");
    }
}

#[test]
fn a_server_does_not_create_the_folder_of_its_data_file() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dueline"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "no/such.db"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("folder of the data file does not exist: no"),
        "{stderr}"
    );
    assert!(!home.path().join("no").exists());
}

#[test]
fn print_config_with_json_prints_the_settings_as_json() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dueline"))
        .args(["--json", "serve", "--print-config", "--data", "a.db"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(config["settings"]["server"]["data"], "a.db");
    assert_eq!(config["origins"]["server.data"], "flag --data");
}
