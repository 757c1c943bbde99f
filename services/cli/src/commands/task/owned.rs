//! The commands of an owner: what it says about a task that it has claimed.

use std::time::Duration;

use dueline_api::v1::{
    Checkpoint as CheckpointBody, Complete, Extend as ExtendBody, Fail as FailBody, Owned,
    ReportedView, Trash as TrashBody,
};
use dueline_domain::{RetryClass, Token, WriteId};
use reqwest::Method;
use serde::Serialize;

use crate::{
    client::RequestBody,
    commands::{
        payload::{Payload, PayloadArgs},
        reference::TaskReference,
    },
    context::Context,
    exit::{CliError, Exit},
    units::{millis, parse_duration},
};

/// The task, and the proof that it is the caller's.
#[derive(Debug, clap::Args)]
struct OwnedArgs {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,

    /// Token of the claim; commands of the handler `exec` have it in the environment
    #[arg(
        long,
        value_name = "HEX",
        env = "DUELINE_TOKEN",
        hide_env_values = true
    )]
    token: Token,

    /// Name of the owner: refusals then name the real one
    #[arg(
        long,
        value_name = "NAME",
        env = "DUELINE_OWNER",
        hide_env_values = true
    )]
    owner: Option<String>,

    /// Name of this report, 16 hexadecimal digits; repeat it after a lost answer
    #[arg(long, value_name = "HEX")]
    write_id: Option<WriteId>,
}

impl OwnedArgs {
    /// Sends a report and shows its answer.
    async fn report(
        &self,
        context: &Context,
        verb: &str,
        body: &impl Serialize,
    ) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["work", self.task.job.as_str(), &id, verb];
        let body = RequestBody::json(body)?;
        let answer = context.client()?.send(Method::POST, &path, body).await?;
        let reported: ReportedView = answer.read()?;
        context.output.show(&answer, context.now(), |_| {
            Ok(match (reported.done, reported.cancel_requested) {
                (false, _) => format!("false: task {} has no owner", self.task),
                (true, false) => format!("task {} is {}", self.task, reported.state),
                (true, true) => format!(
                    "task {} is {}; stop: a user has requested its cancel",
                    self.task, reported.state
                ),
            })
        })?;
        Ok(match reported.done {
            true => Exit::Ok,
            false => Exit::Conflict,
        })
    }

    /// The report that says nothing more.
    fn alone(&self) -> Owned {
        Owned {
            token: self.token,
            write_id: self.write_id,
            owner: self.owner.clone(),
        }
    }
}

/// Begins the run of a claimed task.
#[derive(Debug, clap::Args)]
pub struct Start {
    #[command(flatten)]
    owned: OwnedArgs,
}

impl Start {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let body = self.owned.alone();
        self.owned.report(context, "start", &body).await
    }
}

/// Says that a run goes on.
#[derive(Debug, clap::Args)]
pub struct Heartbeat {
    #[command(flatten)]
    owned: OwnedArgs,
}

impl Heartbeat {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let body = self.owned.alone();
        self.owned.report(context, "heartbeat", &body).await
    }
}

/// Gives a task back.
#[derive(Debug, clap::Args)]
pub struct Abandon {
    #[command(flatten)]
    owned: OwnedArgs,
}

impl Abandon {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let body = self.owned.alone();
        self.owned.report(context, "abandon", &body).await
    }
}

/// Sets the end of a claim anew.
#[derive(Debug, clap::Args)]
pub struct Extend {
    #[command(flatten)]
    owned: OwnedArgs,

    /// How long the claim lasts from now on
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    by: Duration,
}

impl Extend {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Owned {
            token,
            write_id,
            owner,
        } = self.owned.alone();
        let body = ExtendBody {
            token,
            write_id,
            owner,
            by_ms: i64::try_from(millis(self.by)).unwrap_or(i64::MAX),
        };
        self.owned.report(context, "extend", &body).await
    }
}

/// Stores what a later run gets instead of the payload.
#[derive(Debug, clap::Args)]
pub struct Checkpoint {
    #[command(flatten)]
    owned: OwnedArgs,

    #[command(flatten)]
    payload: PayloadArgs,
}

impl Checkpoint {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Owned {
            token,
            write_id,
            owner,
        } = self.owned.alone();
        let Payload { json, text, base64 } = self.payload.read()?;
        let body = CheckpointBody {
            token,
            write_id,
            owner,
            payload: json,
            payload_base64: base64,
            payload_text: text,
        };
        self.owned.report(context, "checkpoint", &body).await
    }
}

/// Ends a task well.
#[derive(Debug, clap::Args)]
pub struct Consume {
    #[command(flatten)]
    owned: OwnedArgs,

    /// What the run returned, as JSON
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with = "result_text")]
    result: Option<String>,

    /// What the run returned, as text
    #[arg(long, value_name = "TEXT")]
    result_text: Option<String>,
}

impl Consume {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Owned {
            token,
            write_id,
            owner,
        } = self.owned.alone();
        let result = PayloadArgs {
            payload: self.result,
            payload_text: self.result_text,
        };
        let Payload { json, text, base64 } = result.read()?;
        let body = Complete {
            token,
            write_id,
            owner,
            result: json,
            result_base64: base64,
            result_text: text,
            started_at: None,
        };
        self.owned.report(context, "complete", &body).await
    }
}

/// Says that a run did not succeed.
#[derive(Debug, clap::Args)]
pub struct Fail {
    #[command(flatten)]
    owned: OwnedArgs,

    /// What went wrong
    #[arg(long, value_name = "TEXT")]
    error: String,

    /// Kind of the failure, which selects a backoff: standard, quick, slow, rate_limited or worker_lost
    #[arg(long, value_name = "CLASS")]
    class: Option<RetryClass>,

    /// Wait before the next run, instead of the job's
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    delay: Option<Duration>,

    /// Do not run it again
    #[arg(long, conflicts_with_all = ["class", "delay"])]
    fatal: bool,
}

impl Fail {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Owned {
            token,
            write_id,
            owner,
        } = self.owned.alone();
        let body = FailBody {
            token,
            write_id,
            owner,
            error: Some(self.error),
            class: self.class.map(|class| class.to_string()),
            delay_ms: self.delay.map(millis),
            fatal: self.fatal,
            cancelled: false,
            started_at: None,
        };
        self.owned.report(context, "fail", &body).await
    }
}

/// Takes a task off for good.
#[derive(Debug, clap::Args)]
pub struct Trash {
    #[command(flatten)]
    owned: OwnedArgs,

    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Trash {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Owned {
            token,
            write_id,
            owner,
        } = self.owned.alone();
        let body = TrashBody {
            token,
            write_id,
            owner,
            reason: self.reason,
        };
        self.owned.report(context, "trash", &body).await
    }
}
