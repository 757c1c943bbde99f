//! The programs of the workspace and their command lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};

use clap::Parser as _;
use dueline_cli::{Cli, Role};
use dueline_tests_infra::text;

/// Each program with the arguments that it puts before those of the command line.
pub(crate) fn programs() -> BTreeMap<String, Vec<String>> {
    let roles = Role::ALL.into_iter().map(|role| {
        let words = role.commands.iter().chain(role.args);
        let words = words.map(|word| (*word).to_owned()).collect();
        (role.program.to_owned(), words)
    });
    roles.chain([("dueline".to_owned(), Vec::new())]).collect()
}

/// Checks that a program of the image accepts these arguments.
#[allow(dead_code, reason = "not every test has command lines")]
pub(crate) fn check_command(path: &str, arguments: &[String]) {
    let name = path
        .strip_prefix("/usr/local/bin/")
        .unwrap_or_else(|| panic!("{path} is not in the folder of the image's programs"));
    let programs = programs();
    let words = programs
        .get(name)
        .unwrap_or_else(|| panic!("{name} is not a program of the workspace"));
    let all = words.iter().chain(arguments);
    let line = std::iter::once("dueline".to_owned()).chain(all.cloned());
    if let Err(error) = Cli::try_parse_from(line.clone().map(OsString::from)) {
        panic!("{:?}: {error}", line.collect::<Vec<_>>());
    }
    for pair in arguments.windows(2).filter(|pair| pair[0] == "--set") {
        let setting = pair[1].split('=').next().expect("a name");
        assert!(
            settings().contains(setting),
            "--set {setting} names no setting"
        );
    }
}

/// The dotted names of all settings.
pub(crate) fn settings() -> BTreeSet<String> {
    let (mut section, mut found) = (String::new(), BTreeSet::new());
    for line in text("config.default.toml").lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            found.insert(format!("{section}{name}"));
        }
    }
    found
}

/// Checks that an environment variable is a known one.
#[allow(dead_code, reason = "not every test has variables")]
pub(crate) fn check_variable(name: &str) {
    let of_settings = settings()
        .into_iter()
        .map(|setting| format!("DUELINE_{}", setting.replace('.', "_").to_uppercase()));
    let known: BTreeSet<_> = of_settings
        .chain(["AWS_REGION", "DUELINE_SERVER"].map(str::to_owned))
        .collect();
    assert!(known.contains(name), "{name} names no setting");
}
