//! `dueline task update`.

use std::time::Duration;

use dueline_api::v1::{PrioritySpec, TaskChange, TaskView, Time};
use dueline_domain::Priority;
use reqwest::Method;

use crate::{
    client::RequestBody,
    commands::{
        payload::{Payload, PayloadArgs},
        reference::TaskReference,
    },
    context::Context,
    exit::{CliError, Exit},
    units::{millis, parse_duration, parse_time},
};

/// Changes a task that no worker owns.
#[derive(Debug, clap::Args)]
pub struct Update {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,

    #[command(flatten)]
    change: TaskChangeArgs,
}

/// The flags that change a task.
#[derive(Debug, clap::Args)]
struct TaskChangeArgs {
    /// New due time, in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<Time>,

    /// New due time, from now
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "at")]
    delay: Option<Duration>,

    /// New priority
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true)]
    priority: Option<Priority>,

    /// New weight
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    weight: Option<i64>,

    #[command(flatten)]
    payload: PayloadArgs,
}

impl Update {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id];
        let body = RequestBody::json(&self.change.into_change()?)?;
        let answer = context.client()?.send(Method::PATCH, &path, body).await?;
        context.output.show(&answer, context.now(), |style| {
            let task: TaskView = answer.read()?;
            let due = style.when(task.run_at);
            Ok(format!(
                "task {} changed ({}, due {due})",
                self.task, task.state
            ))
        })?;
        Ok(Exit::Ok)
    }
}

impl TaskChangeArgs {
    fn into_change(self) -> Result<TaskChange, CliError> {
        let is_given = [
            self.at.is_some(),
            self.delay.is_some(),
            self.priority.is_some(),
            self.weight.is_some(),
            self.payload.is_given(),
        ];
        if !is_given.contains(&true) {
            let message = "no change is given";
            let hint = "use --at, --in, --priority, --weight, --payload or --payload-text to change a task";
            return Err(CliError::invalid(message).with_hint(hint));
        }
        let Payload { json, text, base64 } = self.payload.read()?;
        Ok(TaskChange {
            run_at: self.at,
            delay_ms: self.delay.map(millis),
            priority: self
                .priority
                .map(|priority| PrioritySpec::Number(priority.get().into())),
            weight: self.weight,
            payload: json,
            payload_base64: base64,
            payload_text: text,
        })
    }
}
