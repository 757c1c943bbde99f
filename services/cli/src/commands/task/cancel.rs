//! `dueline task cancel`.

use dueline_api::v1::{CancelRequest, RunningSpec, TaskView};
use reqwest::Method;

use crate::{
    client::RequestBody,
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
};

/// Cancels a task.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,

    /// Request that the worker stops a running task; without this flag, a running task is a conflict
    #[arg(long)]
    running: bool,

    /// Cancel everything that waits for the task, too; runs are asked to stop
    #[arg(long, conflicts_with = "running")]
    family: bool,

    /// Reason, stored with the task
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Cancel {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "cancel"];
        let running = if self.running {
            RunningSpec::Request
        } else {
            RunningSpec::Refuse
        };
        let request = CancelRequest {
            running: Some(running),
            reason: self.reason,
            family: self.family,
        };
        let client = context.client()?;
        let answer = client
            .send(Method::POST, &path, RequestBody::json(&request)?)
            .await;
        let answer = answer.map_err(|error| match error.state() {
            Some(state) if state.is_owned() && !self.running => {
                error.with_hint("--running requests that the worker stops the task")
            }
            _ => error,
        })?;
        context.output.show(&answer, context.now(), |_| {
            let task: TaskView = answer.read()?;
            Ok(if task.cancel_requested && !task.state.is_final() {
                format!("stop of task {} requested", self.task)
            } else {
                format!("task {} is {}", self.task, task.state)
            })
        })?;
        Ok(Exit::Ok)
    }
}
