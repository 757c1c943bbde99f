#![doc = include_str!("../README.md")]

mod files;
mod python;

pub use files::{documents, root, template, text, under};
pub use python::{CommandResult, cfn_lint, python, run_python};
