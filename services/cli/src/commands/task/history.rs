//! `dueline task history`.

use dueline_api::v1::RunsView;

use super::get;
use crate::{
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
};

/// Shows the runs of a task that are over.
#[derive(Debug, clap::Args)]
pub struct History {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,
}

impl History {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "runs"];
        let answer = context.client()?.get(&path, &[]).await?;
        context.output.show(&answer, context.now(), |style| {
            let view: RunsView = answer.read()?;
            Ok(match view.runs.is_empty() {
                true => "no run is over".into(),
                false => get::runs(style, &view.runs, view.dropped),
            })
        })?;
        Ok(Exit::Ok)
    }
}
