//! `dueline schedule trigger`.

use reqwest::Method;

use super::ScheduleArgs;
use crate::{
    client::RequestBody,
    context::Context,
    exit::{CliError, Exit},
};

/// Fires a schedule now, also while it is paused. The overlap policy applies.
#[derive(Debug, clap::Args)]
pub struct Trigger {
    #[command(flatten)]
    schedule: ScheduleArgs,
}

impl Trigger {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let path = self.schedule.verb("trigger");
        let answer = context
            .client()?
            .send(Method::POST, &path, RequestBody::Empty)
            .await?;
        context.output.show(&answer, context.now(), |_| {
            Ok(format!("schedule {} fires", self.schedule))
        })?;
        Ok(Exit::Ok)
    }
}
