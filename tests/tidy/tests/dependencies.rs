//! The lock file holds nothing that would make the build need more than Rust and a C compiler.

#[test]
fn banned_crates_stay_out_of_the_lock_file() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let lock = std::fs::read_to_string(format!("{root}/Cargo.lock")).unwrap();
    let deny = std::fs::read_to_string(format!("{root}/deny.toml")).unwrap();
    let banned: Vec<_> = deny
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{ name = \""))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(banned.len() >= 4, "deny.toml bans {banned:?}");
    for name in banned {
        assert!(
            !lock.contains(&format!("name = \"{name}\"\n")),
            "{name} is in Cargo.lock"
        );
    }
}
