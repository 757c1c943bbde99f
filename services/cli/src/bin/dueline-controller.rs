//! Runs a controller and its executor for the servers that --server names. The same as `dueline controller`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::Role::CONTROLLER.run()
}
