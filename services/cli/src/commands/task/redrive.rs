//! `dueline task redrive`.

use dueline_api::v1::TaskView;
use reqwest::Method;

use crate::{
    client::RequestBody,
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
};

/// Puts a failed or trashed task back with a fresh count of tries.
#[derive(Debug, clap::Args)]
pub struct Redrive {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,
}

impl Redrive {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "redrive"];
        let answer = context
            .client()?
            .send(Method::POST, &path, RequestBody::Empty)
            .await?;
        context.output.show(&answer, context.now(), |_| {
            let task: TaskView = answer.read()?;
            Ok(format!("task {} is {} again", self.task, task.state))
        })?;
        Ok(Exit::Ok)
    }
}
