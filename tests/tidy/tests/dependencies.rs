//! The lock file contains no crate that would make the build need more than Rust and a C compiler, and the libraries
//! bring few crates into other programs.

use std::{collections::BTreeSet, process::Command};

#[test]
fn banned_crates_are_not_in_the_lock_file() {
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

/// The crates that a library brings into the program that uses it, with its default features off.
fn crates_of(package: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", package])
        .args(["--no-default-features", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo tree");
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "cargo tree: {errors}");
    // "name version (path or kind)"; a crate in two versions counts twice.
    String::from_utf8_lossy(&tree.stdout)
        .lines()
        .map(|line| {
            line.split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .filter(|line| !line.is_empty())
        .collect()
}

#[track_caller]
fn assert_light(package: &str, most: usize) {
    let crates = crates_of(package);
    // Far fewer than the bound would mean that the output was not understood.
    assert!(crates.len() > most / 2, "{package} has {crates:?}");
    assert!(
        crates.len() <= most,
        "{package} brings {} crates, more than {most}; put what a library use does not need behind a feature: {crates:?}",
        crates.len()
    );
    for program in [
        "clap",
        "toml",
        "tracing-subscriber",
        "metrics-exporter-prometheus",
    ] {
        let prefix = format!("{program} ");
        assert!(
            !crates.iter().any(|name| name.starts_with(&prefix)),
            "{package} brings {program}, which only a program needs"
        );
    }
}

#[test]
fn a_worker_in_another_program_brings_few_crates() {
    assert_light("dueline-executor", 70);
}

#[test]
fn a_node_embedded_in_another_program_brings_few_crates() {
    assert_light("dueline-all-in-one", 110);
}
