//! The `dueline` command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::run(std::env::args_os())
}
