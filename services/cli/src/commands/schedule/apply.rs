//! `dueline schedule apply`.

use std::time::Duration;

use clap::ValueEnum;
use dueline_api::v1::{PrioritySpec, ScheduleSpec, ScheduleView, TaskSubmit, Time};
use dueline_domain::Priority;
use reqwest::Method;
use serde_json::value::RawValue;

use super::ScheduleArgs;
use crate::{
    client::RequestBody,
    commands::payload::{Payload, PayloadArgs},
    context::Context,
    exit::{CliError, Exit},
    units::{millis, parse_duration, parse_time},
};

const EXAMPLES: &str = "\
Examples:
  dueline schedule apply report nightly '30 2 * * *' --zone Europe/Berlin --payload '{\"of\": \"yesterday\"}'
  dueline schedule apply sync often '@every 10m' --overlap skip --jitter 1m --catch-up none
  dueline schedule get report nightly";

/// Creates a schedule or replaces its settings. The next firing moves only if the rule changes. docs/schedules.md documents
/// rules and policies.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Apply {
    #[command(flatten)]
    schedule: ScheduleArgs,

    /// Cron expression of 5 or 6 fields, a name such as @daily, or '@every DURATION'
    rule: String,

    /// Time zone of a cron expression, by its name in the IANA database [default: UTC]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,

    /// The rule does not fire before this time, in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    start: Option<Time>,

    /// The rule does not fire at or after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    end: Option<Time>,

    /// A time at which an interval fires, which sets its phase [default: 1970-01-01T00:00:00Z]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    anchor: Option<Time>,

    /// Tasks are due up to this much later than their firing
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    jitter: Option<Duration>,

    /// What happens to firings that were missed while no consumer ran [default: latest]
    #[arg(long, value_name = "POLICY")]
    catch_up: Option<CatchUpArg>,

    /// With --catch-up all: how many missed firings are made up for
    #[arg(long, value_name = "N", required_if_eq("catch_up", "all"))]
    catch_up_max: Option<u32>,

    /// How late a firing counts as missed [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    grace: Option<Duration>,

    /// What happens to a firing while tasks of earlier firings are unfinished [default: queue_one]
    #[arg(long, value_name = "POLICY")]
    overlap: Option<OverlapArg>,

    /// How many times the rule fires [default: no limit]
    #[arg(long, value_name = "N")]
    firings_max: Option<u64>,

    /// Description of the schedule
    #[arg(long, value_name = "TEXT")]
    info: Option<String>,

    #[command(flatten)]
    payload: PayloadArgs,

    /// Priority of the tasks: very_low, low, normal, high, very_high, or a number from -1000 to 1000
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true)]
    priority: Option<Priority>,

    /// Part of a worker's concurrency that each task takes
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    weight: Option<i64>,

    /// Name of the tasks
    #[arg(long, value_name = "NAME")]
    task_name: Option<String>,

    /// Tag of the tasks; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Details of the tasks for people, a JSON object
    #[arg(long, value_name = "JSON")]
    details: Option<String>,

    /// Most retries, instead of the job's
    #[arg(long, value_name = "N")]
    retries: Option<u32>,

    /// Longest duration of a run, instead of the job's
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    /// Time without a heartbeat after which a run is lost, instead of the job's; at least 100ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    heartbeat_timeout: Option<Duration>,
}

/// What happens to missed firings.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CatchUpArg {
    /// They are skipped
    None,
    /// The latest is made up for
    Latest,
    /// The latest ones up to --catch-up-max are made up for
    All,
}

/// What happens to a firing while earlier tasks are unfinished.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum OverlapArg {
    /// It is skipped
    Skip,
    /// It waits until they have ended; further firings are skipped
    #[value(alias = "queue-one")]
    QueueOne,
    /// It gets its task at once
    Allow,
    /// They are cancelled, and it gets its task
    #[value(alias = "cancel-previous")]
    CancelPrevious,
}

/// The name of a value on the wire, which is that of the flag.
fn wire_name(value: impl ValueEnum) -> Option<String> {
    let value = value.to_possible_value()?;
    Some(value.get_name().to_owned())
}

impl Apply {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let (schedule, spec) = self.into_spec()?;
        let answer = context
            .client()?
            .send(Method::PUT, &schedule.path(), RequestBody::json(&spec)?)
            .await?;
        context.output.show(&answer, context.now(), |style| {
            let stored: ScheduleView = answer.read()?;
            let next = match (&stored.paused, stored.next_at) {
                (Some(_), _) => "paused".to_owned(),
                (None, Some(at)) => format!("fires next at {at}, {}", style.when(at)),
                (None, None) => "does not fire again".to_owned(),
            };
            Ok(format!("schedule {schedule} applied: {next}"))
        })?;
        Ok(Exit::Ok)
    }

    fn into_spec(self) -> Result<(ScheduleArgs, ScheduleSpec), CliError> {
        let Payload { json, text, base64 } = self.payload.read()?;
        let details = self.details.map(|details| {
            serde_json::from_str::<Box<RawValue>>(&details)
                .map_err(|error| CliError::invalid(format!("--details is not JSON: {error}")))
        });
        let task = TaskSubmit {
            priority: self
                .priority
                .map(|priority| PrioritySpec::Number(priority.get().into())),
            weight: self.weight,
            payload: json,
            payload_base64: base64,
            payload_text: text,
            name: self.task_name,
            details: details.transpose()?,
            tags: (!self.tags.is_empty()).then_some(self.tags),
            retries_max: self.retries,
            run_timeout_ms: self.timeout.map(millis),
            heartbeat_timeout_ms: self.heartbeat_timeout.map(millis),
            ..TaskSubmit::default()
        };
        let spec = ScheduleSpec {
            info: self.info,
            timing: self.rule,
            zone: self.zone,
            start: self.start,
            end: self.end,
            anchor: self.anchor,
            jitter_ms: self.jitter.map(millis),
            catch_up: self.catch_up.and_then(wire_name),
            catch_up_max: self.catch_up_max,
            grace_ms: self.grace.map(millis),
            overlap: self.overlap.and_then(wire_name),
            firings_max: self.firings_max,
            task: Some(task),
        };
        Ok((self.schedule, spec))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct ApplyCommand {
        #[command(flatten)]
        apply: Apply,
    }

    fn parse(args: &[&str]) -> Result<Apply, clap::Error> {
        let given = ["apply", "mail", "nightly", "@daily"].iter().chain(args);
        ApplyCommand::try_parse_from(given).map(|command| command.apply)
    }

    fn request(args: &[&str]) -> Value {
        let (_, spec) = parse(args).unwrap().into_spec().unwrap();
        serde_json::to_value(spec).unwrap()
    }

    #[test]
    fn g_05_flags_become_fields_and_missing_flags_send_no_field() {
        assert_eq!(request(&[]), json!({ "timing": "@daily", "task": {} }));
        let args = [
            "--zone",
            "Europe/Berlin",
            "--start",
            "2030-01-01T00:00:00Z",
            "--jitter",
            "1m",
            "--catch-up",
            "all",
            "--catch-up-max",
            "7",
            "--grace",
            "5s",
            "--overlap",
            "cancel-previous",
            "--firings-max",
            "9",
            "--info",
            "i",
            "--payload",
            "[1]",
            "--priority",
            "low",
            "--weight",
            "2",
            "--task-name",
            "n",
            "--tag",
            "a",
            "--details",
            "{}",
            "--retries",
            "0",
            "--timeout",
            "1s",
            "--heartbeat-timeout",
            "2s",
        ];
        let expected = json!({
            "timing": "@daily", "zone": "Europe/Berlin", "start": "2030-01-01T00:00:00.000Z",
            "jitter_ms": 60_000, "catch_up": "all", "catch_up_max": 7, "grace_ms": 5_000,
            "overlap": "cancel_previous", "firings_max": 9, "info": "i",
            "task": {
                "payload": [1], "priority": -50, "weight": 2, "name": "n", "tags": ["a"],
                "details": {}, "retries_max": 0, "run_timeout_ms": 1_000,
                "heartbeat_timeout_ms": 2_000,
            },
        });
        assert_eq!(request(&args), expected);
    }

    #[test]
    fn contradicting_and_invalid_flags_are_refused() {
        for args in [
            &["--catch-up", "all"][..],
            &["--catch-up", "some"],
            &["--overlap", "never"],
            &["--jitter", "-1s"],
            &["--payload", "1", "--payload-text", "x"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }
}
