//! `dueline schedule backfill`.

use dueline_api::v1::{RangeView, Time};
use reqwest::Method;

use super::ScheduleArgs;
use crate::{
    client::RequestBody,
    context::Context,
    exit::{CliError, Exit},
    units::parse_time,
};

/// Carries out all firings of a range of time, whatever the overlap policy says. A firing whose task exists creates no
/// second one.
#[derive(Debug, clap::Args)]
pub struct Backfill {
    #[command(flatten)]
    schedule: ScheduleArgs,

    /// Where the range begins, in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Time,

    /// Where the range ends, in RFC 3339; not part of it
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Time,
}

impl Backfill {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let (from, to) = (self.from, self.to);
        let path = self.schedule.verb("backfill");
        let body = RequestBody::json(&RangeView { from, to })?;
        let answer = context.client()?.send(Method::POST, &path, body).await?;
        context.output.show(&answer, context.now(), |_| {
            let schedule = &self.schedule;
            Ok(format!(
                "schedule {schedule} carries out its firings from {from} to {to}"
            ))
        })?;
        Ok(Exit::Ok)
    }
}
