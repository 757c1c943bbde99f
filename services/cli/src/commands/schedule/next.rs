//! `dueline schedule next`.

use dueline_api::{ApiError, ErrorReason, v1::Time};
use dueline_domain::{RuleSpec, Timestamp};
use dueline_schedule::{Rule, RuleError};
use serde::Serialize;

use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
    output,
    units::parse_time,
};

/// Shows when a rule fires next, in UTC and in local time. It sends no request; docs/schedules.md documents rules, and
/// what they do where a clock changes.
#[derive(Debug, clap::Args)]
pub struct Next {
    /// Cron expression of 5 or 6 fields, a name such as @daily, or '@every DURATION'
    rule: String,

    /// Time zone of a cron expression, by its name in the IANA database
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,

    /// Show firings later than this time, in RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    after: Option<Time>,

    /// How many firings to show
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,

    /// The rule does not fire before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    start: Option<Time>,

    /// The rule does not fire at or after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    end: Option<Time>,

    /// A time at which an interval fires, which sets its phase [default: 1970-01-01T00:00:00Z]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    anchor: Option<Time>,
}

/// The firings, as `--json` prints them.
#[derive(Serialize)]
struct NextFirings {
    rule: String,
    zone: String,
    firings: Vec<FiringView>,
    /// Whether the rule fires again after them.
    more: bool,
}

/// One firing.
#[derive(Serialize)]
struct FiringView {
    /// Its nominal time in UTC.
    at: Time,
    /// The same as local time.
    local: String,
}

impl Next {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CliError> {
        let rule = Rule::parse(&RuleSpec {
            timing: self.rule.clone(),
            zone: Some(self.zone),
            start: self.start.map(Timestamp::from),
            end: self.end.map(Timestamp::from),
            anchor: self.anchor.map(Timestamp::from),
        })
        .map_err(|error| invalid(&error))?;
        let after = self.after.map_or_else(|| context.now(), Timestamp::from);
        let mut times =
            std::iter::successors(rule.next_after(after), |time| rule.next_after(*time));
        let firings: Vec<_> = times
            .by_ref()
            .take(self.count.into())
            .map(|time| FiringView {
                at: time.into(),
                local: rule.local_text(time),
            })
            .collect();
        let next = NextFirings {
            rule: self.rule,
            zone: rule.zone().to_owned(),
            firings,
            more: times.next().is_some(),
        };
        context
            .output
            .show(&JsonAnswer::of(&next), context.now(), |style| {
                let mut table = style.table(&["UTC", "LOCAL", "WHEN"]);
                for FiringView { at, local } in &next.firings {
                    table.add_row([at.to_string(), local.clone(), style.when(*at)]);
                }
                Ok(output::text(&table))
            })?;
        if !next.more && !context.output.is_json() {
            output::note("the rule does not fire after that");
        }
        Ok(Exit::Ok)
    }
}

fn invalid(error: &RuleError) -> CliError {
    let field = error.field().name();
    let reason = ErrorReason::from_name(error.reason().name());
    ApiError::invalid(field, reason, error.message()).into()
}
