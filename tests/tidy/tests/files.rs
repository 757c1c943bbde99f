//! What a reader of the repository should never meet.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

/// Longest source file: what a reader takes in at one sitting, with room for its tests.
const LINES_MAX: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep")
        .to_owned()
}

/// Every file that git tracks or would track.
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
fn no_source_file_is_longer_than_a_sitting() {
    let long: Vec<_> = files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .map(|path| (text(&path).lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_file_names_a_folder_of_the_machine_it_was_written_on() {
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
        // A route of the API is no folder, even if a machine has one of that name.
        let text = text(&path).replace("/v1/work/", "");
        assert!(is_lock || !text.contains(&needle), "{}", path.display());
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut dead = Vec::new();
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
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
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
        "ARCHITECTURE.md names only {} places",
        named.len()
    );
    for name in named {
        assert!(root().join(name).exists(), "ARCHITECTURE.md names {name}");
    }
}

#[test]
fn no_select_leaves_its_order_to_chance() {
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
                "{}: a select! without biased; makes a seed worthless",
                path.display()
            );
        }
    }
}
