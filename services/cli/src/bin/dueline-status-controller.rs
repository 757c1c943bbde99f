//! Runs the status controller, which stores what workers report. The same as
//! `dueline serve --services status-controller --no-worker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::Role::STATUS_CONTROLLER.run()
}
