//! `dueline task wait`.

use std::time::Duration;

use dueline_api::{ErrorKind, ErrorReason, v1::TaskView};
use dueline_domain::StateKind;
use tokio::time::Instant;

use super::get;
use crate::{
    client::RestClient,
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
    units::{parse_duration, span},
};

/// Longest long poll.
const LONG_POLL_MAX: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Example:
  dueline task wait greet/0197b0c4-5a1e-7c4e-9a59-3f0c6b1d2e4f --timeout 5m";

/// Waits until a task has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Wait {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,

    /// Longest time to wait [default: until it has ended]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

impl Wait {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        until_ended(context, &context.client()?, &self.task, self.timeout).await
    }
}

/// Waits until the task has ended and shows the task. Returns [`Exit::Unsuccessful`] if it did not succeed.
pub(super) async fn until_ended(
    context: &Context,
    client: &RestClient,
    task: &TaskReference,
    timeout: Option<Duration>,
) -> Result<Exit, CliError> {
    let id = task.id.to_string();
    let path = ["jobs", task.job.as_str(), "tasks", &id];
    let started = Instant::now();
    loop {
        let remaining = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        let long_poll = remaining.unwrap_or(LONG_POLL_MAX).min(LONG_POLL_MAX);
        let polled_at = Instant::now();
        let query = [("wait", format!("{}ms", long_poll.as_millis()))];
        let answer = client.get_waiting(&path, &query, long_poll).await?;
        let view: TaskView = answer.read()?;
        if view.state.is_final() {
            context.output.show(&answer, context.now(), |style| {
                Ok(get::render(style, &view))
            })?;
            let succeeded = view.state == StateKind::Succeeded;
            return Ok(if succeeded {
                Exit::Ok
            } else {
                Exit::Unsuccessful
            });
        }
        if let Some(timeout) = timeout
            && started.elapsed() >= timeout
        {
            let message = format!("task {task} is {} after {}", view.state, span(timeout));
            return Err(CliError::new(
                ErrorKind::Deadline,
                ErrorReason::NotEnded,
                message,
            ));
        }
        // A server may respond before the long poll ends, for example while it stops. The pause avoids a tight loop.
        let pause = Duration::from_millis(200).min(long_poll);
        tokio::time::sleep(pause.saturating_sub(polled_at.elapsed())).await;
    }
}
