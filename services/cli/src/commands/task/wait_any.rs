//! `dueline task wait-any`.

use std::time::Duration;

use dueline_api::{ErrorKind, ErrorReason, v1::ClaimableList};
use dueline_domain::JobName;
use tokio::time::Instant;

use crate::{
    context::Context,
    exit::{CliError, Exit},
    units::{parse_duration, span},
};

/// Longest long poll.
const LONG_POLL_MAX: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Example:
  dueline task wait-any review translate --timeout 5m";

/// Waits until a task can be claimed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct WaitAny {
    /// Jobs whose tasks to wait for
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobName>,

    /// Longest time to wait [default: until there is one]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    /// Most tasks to print
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

impl WaitAny {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let client = context.client()?;
        let since = Instant::now();
        loop {
            let left = self.timeout.map(|max| max.saturating_sub(since.elapsed()));
            let wait = left.unwrap_or(LONG_POLL_MAX).min(LONG_POLL_MAX);
            let mut query = vec![
                ("wait", format!("{}ms", wait.as_millis())),
                ("limit", self.limit.to_string()),
            ];
            query.extend(self.jobs.iter().map(|job| ("job", job.to_string())));
            let polled_at = Instant::now();
            let answer = client.get_waiting(&["claimable"], &query, wait).await?;
            let found: ClaimableList = answer.read()?;
            if !found.tasks.is_empty() {
                let names = found.tasks.iter();
                let names: Vec<_> = names
                    .map(|task| format!("{}/{}", task.job, task.id))
                    .collect();
                context
                    .output
                    .show(&answer, context.now(), |_| Ok(names.join("\n")))?;
                return Ok(Exit::Ok);
            }
            if let Some(timeout) = self.timeout
                && since.elapsed() >= timeout
            {
                let message = format!("no task could be claimed within {}", span(timeout));
                let reason = ErrorReason::NothingClaimable;
                return Err(CliError::new(ErrorKind::Deadline, reason, message));
            }
            // A server that stops may respond before the long poll ends.
            let pause = Duration::from_millis(200).min(wait);
            tokio::time::sleep(pause.saturating_sub(polled_at.elapsed())).await;
        }
    }
}
