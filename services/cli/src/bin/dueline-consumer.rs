//! Runs the consumer: finds due tasks and enqueues them. The same as `dueline serve --services consumer --no-worker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_cli::Role::CONSUMER.run()
}
