//! `dueline schedule pause` and `dueline schedule resume`.

use dueline_api::v1::PauseRequest;
use reqwest::Method;

use super::ScheduleArgs;
use crate::{
    client::RequestBody,
    context::Context,
    exit::{CliError, Exit},
};

/// Pauses a schedule. Firings that are due while it is paused are skipped.
#[derive(Debug, clap::Args)]
pub struct Pause {
    #[command(flatten)]
    schedule: ScheduleArgs,

    /// Why, for those who find it paused
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Resumes a schedule.
#[derive(Debug, clap::Args)]
pub struct Resume {
    #[command(flatten)]
    schedule: ScheduleArgs,
}

impl Pause {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let reason = self.reason;
        let body = RequestBody::json(&PauseRequest { reason })?;
        set_paused(context, &self.schedule, "pause", body, "paused").await
    }
}

impl Resume {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let body = RequestBody::Empty;
        set_paused(context, &self.schedule, "resume", body, "resumed").await
    }
}

async fn set_paused(
    context: &Context,
    schedule: &ScheduleArgs,
    verb: &'static str,
    body: RequestBody,
    done: &str,
) -> Result<Exit, CliError> {
    let answer = context
        .client()?
        .send(Method::POST, &schedule.verb(verb), body)
        .await?;
    context.output.show(&answer, context.now(), |_| {
        Ok(format!("schedule {schedule} {done}"))
    })?;
    Ok(Exit::Ok)
}
