//! `dueline task expires-in`.

use std::time::Duration;

use dueline_api::v1::LeaseView;

use crate::{
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
    sanitize::clean,
};

/// Shows how long the claim of a task still lasts.
#[derive(Debug, clap::Args)]
pub struct ExpiresIn {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,
}

impl ExpiresIn {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "lease"];
        let answer = context.client()?.get(&path, &[]).await?;
        context.output.show(&answer, context.now(), |_| {
            let lease: LeaseView = answer.read()?;
            Ok(match lease.expires_in_ms {
                // To the millisecond, for scripts.
                Some(ms) => humantime::format_duration(Duration::from_millis(ms)).to_string(),
                None => clean(&lease.expires).into_owned(),
            })
        })?;
        Ok(Exit::Ok)
    }
}
