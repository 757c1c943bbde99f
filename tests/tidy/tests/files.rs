//! Rules for all files of the repository.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

/// The greatest length of a source file, tests included: what a reader can take in at one sitting.
const LINES_MAX: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two folders deep")
        .to_owned()
}

/// Every file that git tracks, and every untracked file that it does not ignore.
fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    names
        .lines()
        .map(|name| root().join(name))
        .filter(|path| path.is_file())
        .collect()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<_> = files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .map(|path| (text(&path).lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_file_contains_a_path_of_the_machine_that_runs_the_tests() {
    let here = root();
    let above = here
        .parent()
        .expect("a folder above")
        .to_string_lossy()
        .into_owned();
    if above.len() < 3 {
        return;
    }
    for path in files() {
        let is_lock = path.extension().is_some_and(|ending| ending == "lock");
        let needle = format!("{above}/");
        // `/v1/work/` is a route of the API. A machine may have a folder `/work`.
        let text = text(&path).replace("/v1/work/", "");
        assert!(is_lock || !text.contains(&needle), "{}", path.display());
    }
}

#[test]
fn links_between_documents_are_not_broken() {
    let mut broken = Vec::new();
    for path in files() {
        if path.extension().is_none_or(|ending| ending != "md") {
            continue;
        }
        let folder = path.parent().expect("a file has a folder");
        for part in text(&path).split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !folder.join(target).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn files_named_in_the_walk_of_one_task_exist() {
    let architecture = text(&root().join("ARCHITECTURE.md"));
    let named: BTreeSet<_> = architecture
        .split('`')
        .filter(|word| {
            let is_path = word.starts_with("services/") || word.starts_with("shared/");
            is_path && !word.contains(' ') && !word.contains('*')
        })
        .collect();
    assert!(
        named.len() > 10,
        "ARCHITECTURE.md names only {} paths",
        named.len()
    );
    for name in named {
        assert!(
            root().join(name).exists(),
            "ARCHITECTURE.md names {name}, which does not exist"
        );
    }
}

#[test]
fn every_select_is_biased() {
    for path in files() {
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let source = text(&path);
        for part in source.split("select! {").skip(1) {
            let first = part.trim_start();
            let is_this_test = path.ends_with("tests/tidy/tests/files.rs");
            assert!(
                first.starts_with("biased;") || is_this_test,
                "{}: a select! without biased; polls in random order, so a simulation cannot be replayed from its seed",
                path.display()
            );
        }
    }
}
