//! `dueline task submit`.

use std::time::Duration;

use dueline_api::v1::{PrioritySpec, SubmittedView, TaskSubmit, Time};
use dueline_domain::{JobName, Priority, TaskId};
use reqwest::Method;
use serde_json::value::RawValue;

use super::{batch, wait};
use crate::{
    cli::Context,
    client::Body,
    commands::{
        payload::{Payload, PayloadArgs},
        reference::TaskReference,
    },
    exit::{CliError, Exit},
    units::{millis, parse_duration, parse_time},
};

/// Submits a task.
#[derive(Debug, clap::Args)]
pub struct Submit {
    /// Job that the task belongs to
    job: JobName,

    /// Submit the tasks of a file with one JSON object a line; - is standard input
    #[arg(long, value_name = "FILE.ndjson")]
    batch: Option<String>,

    /// What one task is
    #[command(flatten)]
    one: One,

    /// Wait until it has ended; exit code 6 unless it succeeded
    #[arg(long, conflicts_with = "batch")]
    wait: bool,

    /// Longest time to wait
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, requires = "wait")]
    wait_timeout: Option<Duration>,
}

/// What one task is.
#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    payload: PayloadArgs,

    /// When it is due, in RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "batch")]
    at: Option<Time>,

    /// When it is due, from now
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with_all = ["at", "batch"])]
    delay: Option<Duration>,

    /// very_low, low, normal, high, very_high, or a number from -1000 to 1000
    #[arg(
        long,
        value_name = "LEVEL",
        allow_hyphen_values = true,
        conflicts_with = "batch"
    )]
    priority: Option<Priority>,

    /// What it counts against a worker's concurrency
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        conflicts_with = "batch"
    )]
    weight: Option<i64>,

    /// Its id; the same submit with the same id is one task
    #[arg(long, value_name = "UUID", conflicts_with = "batch")]
    id: Option<TaskId>,

    /// Idempotency key: one task per key within the job
    #[arg(long, conflicts_with = "batch")]
    key: Option<String>,

    /// A name for people
    #[arg(long, conflicts_with = "batch")]
    name: Option<String>,

    /// A word to filter by; may be repeated
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "batch")]
    tags: Vec<String>,

    /// A JSON object for people
    #[arg(long, value_name = "JSON", conflicts_with = "batch")]
    details: Option<String>,

    /// Runs after the first, instead of the job's
    #[arg(long, value_name = "N", value_parser = parse_retries, allow_hyphen_values = true, conflicts_with = "batch")]
    retries: Option<u32>,

    /// Longest run, instead of the job's
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "batch")]
    timeout: Option<Duration>,

    /// A run is lost when nothing was heard of its worker for this long (at least 100ms), instead of the job's
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "batch")]
    heartbeat_timeout: Option<Duration>,
}

fn parse_retries(text: &str) -> Result<u32, String> {
    if text == "unlimited" {
        return Err(format!(
            "only a job can have `unlimited` retries; give the task a number from 0 to {}",
            u32::MAX
        ));
    }
    text.parse()
        .map_err(|_| format!("give a number from 0 to {}", u32::MAX))
}

impl Submit {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        if let Some(file) = &self.batch {
            if self.one.payload.is_given() {
                let message = "--batch takes the payloads from its file";
                return Err(CliError::invalid(message));
            }
            return batch::submit(context, &self.job, file).await;
        }
        let client = context.client()?;
        let path = ["jobs", self.job.as_str(), "tasks"];
        let body = Body::json(&self.one.into_submit()?)?;
        let answer = client.send(Method::POST, &path, body).await?;
        let submitted: SubmittedView = answer.read()?;
        let task = TaskReference {
            job: submitted.job.clone(),
            id: submitted.id,
        };
        if self.wait {
            // Whoever waits wants one answer: the task as it ended.
            if !context.output.is_json() {
                context.output.line(&told(&submitted, &task, context))?;
            }
            return wait::until_ended(context, &client, &task, self.wait_timeout).await;
        }
        context.output.show(&answer, context.now(), |_| {
            Ok(told(&submitted, &task, context))
        })?;
        Ok(Exit::Ok)
    }
}

fn told(submitted: &SubmittedView, task: &TaskReference, context: &Context) -> String {
    let existed = if submitted.existed {
        "existed already"
    } else {
        "submitted"
    };
    let now = context.now();
    let due = match submitted.run_at.0 > now {
        true => format!(", due {}", crate::units::relative(submitted.run_at.0, now)),
        false => String::new(),
    };
    format!("task {task} {existed} ({}{due})", submitted.state)
}

impl One {
    fn into_submit(self) -> Result<TaskSubmit, CliError> {
        let Payload { json, text, base64 } = self.payload.read()?;
        let details = self.details.map(|details| {
            serde_json::from_str::<Box<RawValue>>(&details)
                .map_err(|error| CliError::invalid(format!("--details is not JSON: {error}")))
        });
        Ok(TaskSubmit {
            id: self.id,
            run_at: self.at,
            delay_ms: self.delay.map(millis),
            priority: self
                .priority
                .map(|priority| PrioritySpec::Number(priority.get().into())),
            weight: self.weight,
            payload: json,
            payload_base64: base64,
            payload_text: text,
            name: self.name,
            details: details.transpose()?,
            tags: (!self.tags.is_empty()).then_some(self.tags),
            key: self.key,
            retries_max: self.retries,
            run_timeout_ms: self.timeout.map(millis),
            heartbeat_timeout_ms: self.heartbeat_timeout.map(millis),
            ..TaskSubmit::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        submit: Submit,
    }

    fn line(words: &[&str]) -> Result<Line, clap::Error> {
        Line::try_parse_from(["submit", "mail"].iter().chain(words))
    }

    fn sent(words: &[&str]) -> Value {
        let submit = line(words).unwrap().submit.one.into_submit().unwrap();
        serde_json::to_value(submit).unwrap()
    }

    #[test]
    fn flags_become_fields_and_what_is_not_given_is_not_sent() {
        assert_eq!(sent(&[]), json!({}));
        let words = [
            "--payload",
            "{\"a\":1}",
            "--in",
            "1m30s",
            "--priority",
            "very_low",
            "--weight",
            "3",
            "--key",
            "k",
            "--name",
            "n",
            "--tag",
            "x",
            "--tag",
            "y",
            "--retries",
            "0",
            "--timeout",
            "30s",
            "--details",
            "{}",
            "--heartbeat-timeout",
            "7",
            "--id",
            "0197b0c4-0000-7000-8000-000000000001",
        ];
        let wanted = json!({
            "id": "0197b0c4-0000-7000-8000-000000000001",
            "delay_ms": 90_000, "priority": -100, "weight": 3, "payload": { "a": 1 }, "name": "n", "details": {},
            "tags": ["x", "y"], "key": "k", "retries_max": 0, "heartbeat_timeout_ms": 7_000, "run_timeout_ms": 30_000,
        });
        assert_eq!(sent(&words), wanted);
        assert_eq!(
            sent(&["--priority", "-5", "--payload-text", "x"]),
            json!({ "priority": -5, "payload_text": "x" })
        );
        let at = sent(&["--at", "2030-01-01T01:00:00+01:00"]);
        assert_eq!(at, json!({ "run_at": "2030-01-01T00:00:00.000Z" }));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for words in [
            &["--at", "2030-01-01T00:00:00Z", "--in", "1s"][..],
            &["--payload", "1", "--payload-text", "x"],
            &["--batch", "f", "--wait"],
            &["--batch", "f", "--key", "k"],
            &["--wait-timeout", "1s"],
            &["--priority", "urgent"],
            &["--id", "42"],
            &["--at", "soon"],
        ] {
            assert!(line(words).is_err(), "{words:?}");
        }
        for (words, wanted) in [
            (["--in", "-5s"], "'-5s' is no duration"),
            (["--timeout", "-1"], "'-1' is no duration"),
            (["--retries", "-1"], "give a number from 0 to 4294967295"),
            (["--retries", "unlimited"], "only a job can have"),
            (
                ["--at", "10000-01-01T00:00:00Z"],
                "must be an RFC 3339 time between 1970 and 9999",
            ),
        ] {
            let error = line(&words).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
