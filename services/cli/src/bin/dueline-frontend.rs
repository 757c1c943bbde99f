//! Runs the frontend, which serves clients. The same as `dueline serve --services frontend --no-worker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::Role::FRONTEND.run()
}
