//! `dueline task wait`.

use std::time::Duration;

use dueline_api::{ErrorKind, v1::TaskView};
use dueline_domain::StateKind;
use tokio::time::Instant;

use super::get;
use crate::{
    cli::Context,
    client::Client,
    commands::reference::TaskReference,
    exit::{CliError, Exit},
    units::{parse_duration, span},
};

/// Longest time that the server is asked to hold back one answer.
const HOLD_MAX: Duration = Duration::from_secs(30);

/// Waits until a task has ended.
#[derive(Debug, clap::Args)]
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

/// Waits until the task has ended and shows it. [`Exit::Unsuccessful`] unless it succeeded.
pub(super) async fn until_ended(
    context: &Context,
    client: &Client,
    task: &TaskReference,
    timeout: Option<Duration>,
) -> Result<Exit, CliError> {
    let id = task.id.to_string();
    let path = ["jobs", task.job.as_str(), "tasks", &id];
    let begin = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
        let hold = left.unwrap_or(HOLD_MAX).min(HOLD_MAX);
        let asked = Instant::now();
        let query = [("wait", format!("{}ms", hold.as_millis()))];
        let answer = client.get_waiting(&path, &query, hold).await?;
        let seen: TaskView = answer.read()?;
        if seen.state.is_final() {
            context
                .output
                .show(&answer, context.now(), |style| Ok(get::tell(style, &seen)))?;
            let succeeded = seen.state == StateKind::Succeeded;
            return Ok(if succeeded {
                Exit::Ok
            } else {
                Exit::Unsuccessful
            });
        }
        if let Some(timeout) = timeout
            && begin.elapsed() >= timeout
        {
            let message = format!("task {task} is {} after {}", seen.state, span(timeout));
            return Err(CliError::new(ErrorKind::Deadline, "not_ended", message));
        }
        // A server that answers at once, because it is stopping for example, must not be asked in a tight loop.
        let pause = Duration::from_millis(200).min(hold);
        tokio::time::sleep(pause.saturating_sub(asked.elapsed())).await;
    }
}
