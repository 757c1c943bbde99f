//! Reads files of the repository.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde_json::Value;

use crate::python::{python, run_python};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies two folders deep")
}

/// The text of a file of the repository.
pub fn text(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file of the repository.
pub fn documents(path: &str) -> Vec<Value> {
    let script = root().join("tests/infra/python/to_json.py");
    let result = run_python(python().arg(script).arg(root().join(path)));
    assert!(
        result.success,
        "{path} is not valid YAML: {}",
        result.errors
    );
    serde_json::from_str(&result.output).expect("the script prints JSON")
}

/// The CloudFormation template, with its tags expanded to functions.
pub fn template() -> &'static Value {
    static TEMPLATE: OnceLock<Value> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let mut found = documents("infra/cloudformation.yaml");
        assert_eq!(found.len(), 1, "a template is one document");
        found.remove(0)
    })
}

/// The files with an extension in a folder of the repository and below it.
pub fn under(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("a folder that can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} in {folder}");
    found
}
