//! Runs a controller for the server that --server names, with its executor. The same as `dueline controller`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::Role::CONTROLLER.run()
}
