//! Runs an executor for the server or controller that --server names. The same as `dueline worker run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::Role::EXECUTOR.run()
}
