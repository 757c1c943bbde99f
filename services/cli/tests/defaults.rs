//! Settings of a server that reach the jobs it stores.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

/// A server, killed when the test is over.
struct Server(Child, String);

impl Server {
    fn start(words: &[&str], home: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dueline"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn"])
            .args(words)
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

    fn ask(&self, words: &[&str]) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_dueline"))
            .args(["--json", "--server", &self.1])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_gets_the_timeouts_of_the_servers_settings_where_it_names_none() {
    let home = tempfile::tempdir().unwrap();
    let settings = [
        "--set=defaults.enqueue_timeout_ms=41000",
        "--set=defaults.claim_timeout_ms=42000",
        "--set=defaults.heartbeat_timeout_ms=43000",
    ];
    let server = Server::start(&settings, home.path());
    server.ask(&["job", "apply", "plain", "--command", "true"]);
    let job = server.ask(&["job", "get", "plain"]);
    for (field, wanted) in [
        ("enqueue_timeout_ms", 41_000),
        ("claim_timeout_ms", 42_000),
        ("heartbeat_timeout_ms", 43_000),
        ("heartbeat_increment_ms", 43_000),
    ] {
        assert_eq!(job[field], wanted, "{field} of {job}");
    }
}

#[test]
fn a_server_does_not_make_the_folder_of_its_data() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dueline"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "no/such.db"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("folder of the data file does not exist: no"),
        "{told}"
    );
    assert!(!home.path().join("no").exists());
}

#[test]
fn the_settings_are_printed_as_json_for_programs() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dueline"))
        .args(["--json", "serve", "--print-config", "--data", "a.db"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["settings"]["server"]["data"], "a.db");
    assert_eq!(told["origins"]["server.data"], "flag --data");
}
