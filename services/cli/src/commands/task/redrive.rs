//! `dueline task redrive`.

use dueline_api::v1::TaskView;

use crate::{
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

    /// Let the tasks that were cancelled because of it wait for it again, and those that were cancelled because of them;
    /// the task itself may have been redriven before
    #[arg(long)]
    with_followers: bool,
}

impl Redrive {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "redrive"];
        let with_followers = ("with_followers", "true".to_owned());
        let query = if self.with_followers {
            &[with_followers][..]
        } else {
            &[]
        };
        let answer = context.client()?.post(&path, query).await?;
        context.output.show(&answer, context.now(), |_| {
            let task: TaskView = answer.read()?;
            Ok(format!("task {} is {} again", self.task, task.state))
        })?;
        Ok(Exit::Ok)
    }
}
