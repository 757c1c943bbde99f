//! An operation has one definition, so few files name it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Most files of the product that a new operation on tasks touches. ARCHITECTURE.md lists them.
const FILES_MAX: usize = 7;

/// Where operations of clients are defined, served and called.
const PARTS: [&str; 4] = [
    "shared/api/src",
    "shared/api/proto",
    "services/frontend/src",
    "services/cli/src",
];

fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

fn files_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_in(&path, found),
            false => found.push(path),
        }
    }
}

/// Whether a file names the type or the messages of an operation, outside of comments and texts. The verbs of the lifecycle are
/// something else: a refused verb without a text of its own gets a general one.
fn names(path: &Path, operation: &str) -> bool {
    let (request, module) = (format!("{operation}Request"), operation.to_lowercase());
    let text = fs::read_to_string(path).unwrap().replace("Verb::", "Verb_");
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    // Every second part of a line is in quotes: a text for people may name a command.
    let code = code.flat_map(|line| line.split('"').step_by(2));
    code.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .any(|word| word == operation || word == request || word == module)
}

#[test]
fn an_operation_on_tasks_touches_few_files() {
    let mut files = Vec::new();
    for part in PARTS {
        files_in(&root().join(part), &mut files);
    }
    let operation = "Redrive";
    let touched: BTreeSet<&Path> = files
        .iter()
        .filter(|path| names(path, operation))
        .map(|path| path.strip_prefix(root()).unwrap())
        .collect();
    let definition = Path::new("shared/api/src/operation/redrive.rs");
    assert!(touched.contains(definition), "{touched:?}");
    assert!(touched.len() <= FILES_MAX, "{touched:#?}");
}
