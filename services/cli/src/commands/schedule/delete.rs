//! `dueline schedule delete`.

use reqwest::Method;
use serde_json::json;

use super::ScheduleArgs;
use crate::{
    client::{JsonAnswer, RequestBody},
    context::Context,
    exit::{CliError, Exit},
};

/// Deletes a schedule. Its tasks stay, also those that have not run.
#[derive(Debug, clap::Args)]
pub struct Delete {
    #[command(flatten)]
    schedule: ScheduleArgs,
}

impl Delete {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let schedule = self.schedule;
        context
            .client()?
            .send(Method::DELETE, &schedule.path(), RequestBody::Empty)
            .await?;
        let (job, name) = (schedule.job.as_str(), schedule.schedule.as_str());
        let answer = json!({ "job": job, "schedule": name, "deleted": true });
        context
            .output
            .show(&JsonAnswer::of(&answer), context.now(), |_| {
                Ok(format!("schedule {schedule} deleted; its tasks stay"))
            })?;
        Ok(Exit::Ok)
    }
}
