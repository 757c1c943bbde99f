//! The systemd unit that the project ships.

#[test]
fn the_unit_of_systemd_starts_the_server_with_arguments_that_it_accepts() {
    let unit = include_str!("../../../infra/systemd/dueline.service");
    let lines = unit.lines();
    let starts: Vec<_> = lines
        .filter_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/dueline "))
        .collect();
    assert_eq!(starts.len(), 1, "{unit}");
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_dueline"));
    let output = command
        .env_clear()
        .args(starts[0].split(' '))
        .arg("--print-config")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    // Its folder is the one that systemd creates for it.
    assert!(unit.contains("\nStateDirectory=dueline\n"));
    let file = "\"/var/lib/dueline/dueline.db\"";
    assert!(printed.contains(file), "{printed}");
}
