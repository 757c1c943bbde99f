//! Runs the consumer: finds what is due and hands it on. The same as `dueline serve --services consumer --no-worker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::Role::CONSUMER.run()
}
