//! `dueline task submit`.

use std::time::Duration;

use dueline_api::v1::{
    FromRunSpec, PredecessorSpec, PrioritySpec, SubmittedView, TaskSubmit, Time, UniqueSpec,
};
use dueline_domain::{HeldUntil, JobName, OnConflict, Priority, TaskId, Token, TriggerOn};
use reqwest::Method;
use serde_json::value::RawValue;

use super::{batch, wait};
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

const EXAMPLES: &str = "\
Examples:
  dueline task submit greet --payload-text world --wait
  dueline task submit greet --payload '{\"name\": \"world\"}' --in 10m --priority high --key order-17
  dueline task submit greet --in 5s --key user-7 --on-conflict replace
  dueline task submit greet --batch tasks.ndjson";

/// Submits a task.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Submit {
    /// Job of the task
    job: JobName,

    /// Submit the tasks of a file with one JSON object per line; - is standard input
    #[arg(long, value_name = "FILE.ndjson")]
    batch: Option<String>,

    /// The flags of a single task
    #[command(flatten)]
    single: SingleTaskArgs,

    /// Wait until the task has ended; exit code 6 if it did not succeed
    #[arg(long, conflicts_with = "batch")]
    wait: bool,

    /// Longest time to wait
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, requires = "wait")]
    wait_timeout: Option<Duration>,
}

/// The flags of a single task.
#[derive(Debug, clap::Args)]
struct SingleTaskArgs {
    #[command(flatten)]
    payload: PayloadArgs,

    /// Due time, in RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "batch")]
    at: Option<Time>,

    /// Due time, from now
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with_all = ["at", "batch"])]
    delay: Option<Duration>,

    /// Priority: very_low, low, normal, high, very_high, or a number from -1000 to 1000
    #[arg(
        long,
        value_name = "LEVEL",
        allow_hyphen_values = true,
        conflicts_with = "batch"
    )]
    priority: Option<Priority>,

    /// Part of a worker's concurrency that the task takes
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        conflicts_with = "batch"
    )]
    weight: Option<i64>,

    /// Task id; repeating the same submit with the same id creates no second task
    #[arg(long, value_name = "UUID", conflicts_with = "batch")]
    id: Option<TaskId>,

    /// Idempotency key: one task per key within the job
    #[arg(long, conflicts_with = "batch")]
    key: Option<String>,

    /// Until when the task holds its key: started, ended or deleted [default: ended; started with replace]
    #[arg(long, value_name = "SCOPE", value_parser = parse_scope, requires = "key", conflicts_with = "batch")]
    unique_until: Option<String>,

    /// For how long after its submit the task holds its key at the most
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, requires = "key", conflicts_with = "batch")]
    unique_for: Option<Duration>,

    /// If another task holds the key: return that one, replace it by this one if its run has not begun, or reject this
    /// one [default: return]
    #[arg(long, value_name = "ACTION", value_parser = parse_on_conflict, requires = "key", conflicts_with = "batch")]
    on_conflict: Option<String>,

    /// How long after its first submit the task is due at the latest, however often it is replaced
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, requires = "on_conflict", conflicts_with = "batch")]
    max_delay: Option<Duration>,

    /// Key with which the task takes turns with others of its job, such as the name of a tenant; the job needs --fair-share
    #[arg(long, value_name = "KEY", conflicts_with = "batch")]
    fairness_key: Option<String>,

    /// Name of the task
    #[arg(long, conflicts_with = "batch")]
    name: Option<String>,

    /// Tag to filter by; may be repeated
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "batch")]
    tags: Vec<String>,

    /// Details for people, a JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "batch")]
    details: Option<String>,

    /// Most retries, instead of the job's
    #[arg(long, value_name = "N", value_parser = parse_retries, allow_hyphen_values = true, conflicts_with = "batch")]
    retries: Option<u32>,

    /// Longest duration of a run, instead of the job's
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "batch")]
    timeout: Option<Duration>,

    /// Task to wait for, of the same job or as JOB/UUID; may be repeated
    #[arg(long, value_name = "TASK", value_parser = parse_predecessor, conflicts_with = "batch")]
    after: Vec<PredecessorSpec>,

    /// Parent, of the same job or as JOB/UUID: the task goes on when the parent's own run has succeeded
    #[arg(long, value_name = "TASK", value_parser = parse_predecessor, conflicts_with = "batch")]
    parent: Option<PredecessorSpec>,

    /// A child that does not succeed makes this task, for its followers, one that has not succeeded
    #[arg(long, conflicts_with = "batch")]
    fail_on_child: bool,

    /// Submit from inside the run of an exec handler: the task is discarded unless that run succeeds
    #[arg(long)]
    from_run: bool,

    /// Ends of those tasks that let this one go on: success, failure or always [default: success]
    #[arg(long, value_name = "RULE", value_parser = parse_rule, requires = "after", conflicts_with = "batch")]
    trigger_on: Option<String>,

    /// Time without a heartbeat after which a run is lost, instead of the job's; at least 100ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "batch")]
    heartbeat_timeout: Option<Duration>,
}

fn parse_predecessor(text: &str) -> Result<PredecessorSpec, String> {
    let (job, id) = match text.contains('/') {
        true => {
            let task: TaskReference = text.parse()?;
            (Some(task.job.to_string()), task.id)
        }
        false => (
            None,
            TaskId::parse(text).map_err(|error| error.to_string())?,
        ),
    };
    let id = id.to_string();
    Ok(PredecessorSpec { job, id })
}

/// The run in whose environment this command runs.
fn run_from(variable: impl Fn(&str) -> Option<String>) -> Result<FromRunSpec, CliError> {
    let read = |name: &str| {
        variable(name).ok_or_else(|| {
            let message = format!(
                "--from-run is for commands of an exec handler, and {name} is not in the environment"
            );
            CliError::invalid(message)
        })
    };
    let token = read("DUELINE_TOKEN")?;
    let token: Token = token.parse().map_err(|error| {
        CliError::invalid(format!("DUELINE_TOKEN is not the token of a run: {error}"))
    })?;
    Ok(FromRunSpec {
        job: read("DUELINE_JOB")?,
        id: read("DUELINE_TASK_ID")?,
        token,
    })
}

fn parse_rule(text: &str) -> Result<String, String> {
    let known = TriggerOn::ALL.map(TriggerOn::name).join(", ");
    let rule = TriggerOn::from_name(text).ok_or_else(|| format!("give one of {known}"))?;
    Ok(rule.name().to_owned())
}

fn parse_scope(text: &str) -> Result<String, String> {
    let known = HeldUntil::ALL.map(HeldUntil::name).join(", ");
    let scope = HeldUntil::from_name(text).ok_or_else(|| format!("give one of {known}"))?;
    Ok(scope.name().to_owned())
}

fn parse_on_conflict(text: &str) -> Result<String, String> {
    let known = OnConflict::ALL.map(OnConflict::name).join(", ");
    let action = OnConflict::from_name(text).ok_or_else(|| format!("give one of {known}"))?;
    Ok(action.name().to_owned())
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
            if self.single.payload.is_given() {
                let message =
                    "--batch reads payloads from its file; remove --payload and --payload-text";
                return Err(CliError::invalid(message));
            }
            let from_run = self.single.source_run()?;
            return batch::submit(context, &self.job, file, from_run.as_ref()).await;
        }
        let client = context.client()?;
        let path = ["jobs", self.job.as_str(), "tasks"];
        let body = RequestBody::json(&self.single.into_submit()?)?;
        let answer = client.send(Method::POST, &path, body).await?;
        let submitted: SubmittedView = answer.read()?;
        let task = TaskReference {
            job: submitted.job.clone(),
            id: submitted.id,
        };
        if self.wait {
            // With --json the only output is the task in its final state.
            if !context.output.is_json() {
                context.output.line(&render(&submitted, &task, context))?;
            }
            return wait::until_ended(context, &client, &task, self.wait_timeout).await;
        }
        context.output.show(&answer, context.now(), |_| {
            Ok(render(&submitted, &task, context))
        })?;
        Ok(Exit::Ok)
    }
}

fn render(submitted: &SubmittedView, task: &TaskReference, context: &Context) -> String {
    let existed = if submitted.replaced {
        "replaced"
    } else if submitted.existed {
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

impl SingleTaskArgs {
    /// The run from inside which the command is called, if that is asked for.
    fn source_run(&self) -> Result<Option<FromRunSpec>, CliError> {
        let run = self
            .from_run
            .then(|| run_from(|name| std::env::var(name).ok()));
        run.transpose()
    }

    fn into_submit(self) -> Result<TaskSubmit, CliError> {
        let from_run = self.source_run()?;
        let Payload { json, text, base64 } = self.payload.read()?;
        let details = self.details.map(|details| {
            serde_json::from_str::<Box<RawValue>>(&details)
                .map_err(|error| CliError::invalid(format!("--details is not JSON: {error}")))
        });
        let unique = UniqueSpec {
            until: self.unique_until,
            period_ms: self.unique_for.map(millis),
            on_conflict: self.on_conflict,
            max_delay_ms: self.max_delay.map(millis),
        };
        Ok(TaskSubmit {
            id: self.id.map(|id| id.to_string()),
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
            fairness_key: self.fairness_key,
            unique: (unique != UniqueSpec::default()).then_some(unique),
            after: (!self.after.is_empty()).then_some(self.after),
            trigger_on: self.trigger_on,
            parent: self.parent,
            fail_on_child: self.fail_on_child.then_some(true),
            from_run,
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
    struct SubmitCommand {
        #[command(flatten)]
        submit: Submit,
    }

    fn parse(args: &[&str]) -> Result<SubmitCommand, clap::Error> {
        SubmitCommand::try_parse_from(["submit", "mail"].iter().chain(args))
    }

    fn request(args: &[&str]) -> Value {
        let submit = parse(args).unwrap().submit.single.into_submit().unwrap();
        serde_json::to_value(submit).unwrap()
    }

    #[test]
    fn flags_become_fields_and_missing_flags_send_no_field() {
        assert_eq!(request(&[]), json!({}));
        let args = [
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
            "--after",
            "0197b0c4-0000-7000-8000-000000000002",
            "--after",
            "import/0197b0c4-0000-7000-8000-000000000003",
            "--trigger-on",
            "always",
            "--parent",
            "0197b0c4-0000-7000-8000-000000000004",
            "--fail-on-child",
            "--id",
            "0197b0c4-0000-7000-8000-000000000001",
        ];
        let expected = json!({
            "id": "0197b0c4-0000-7000-8000-000000000001",
            "delay_ms": 90_000, "priority": -100, "weight": 3, "payload": { "a": 1 }, "name": "n", "details": {},
            "tags": ["x", "y"], "key": "k", "retries_max": 0, "heartbeat_timeout_ms": 7_000, "run_timeout_ms": 30_000,
            "after": [
                { "id": "0197b0c4-0000-7000-8000-000000000002" },
                { "job": "import", "id": "0197b0c4-0000-7000-8000-000000000003" },
            ],
            "trigger_on": "always", "parent": { "id": "0197b0c4-0000-7000-8000-000000000004" }, "fail_on_child": true,
        });
        assert_eq!(request(&args), expected);
        assert_eq!(
            request(&["--priority", "-5", "--payload-text", "x"]),
            json!({ "priority": -5, "payload_text": "x" })
        );
        let args = [
            "--key",
            "k",
            "--unique-for",
            "1h",
            "--unique-until",
            "deleted",
        ];
        let unique = json!({ "until": "deleted", "period_ms": 3_600_000 });
        assert_eq!(request(&args), json!({ "key": "k", "unique": unique }));
        let args = [
            "--key",
            "k",
            "--on-conflict",
            "replace",
            "--max-delay",
            "10s",
        ];
        let unique = json!({ "on_conflict": "replace", "max_delay_ms": 10_000 });
        assert_eq!(request(&args), json!({ "key": "k", "unique": unique }));
        let at = request(&["--at", "2030-01-01T01:00:00+01:00"]);
        assert_eq!(at, json!({ "run_at": "2030-01-01T00:00:00.000Z" }));
    }

    #[test]
    fn a_13_the_run_of_a_submit_is_read_from_the_environment_of_its_command() {
        let id = "0197b0c4-0000-7000-8000-000000000001";
        let known = |name: &str| match name {
            "DUELINE_JOB" => Some("import".to_owned()),
            "DUELINE_TASK_ID" => Some(id.to_owned()),
            "DUELINE_TOKEN" => Some("00c0ffee00c0ffee".to_owned()),
            _ => None,
        };
        let run = serde_json::to_value(run_from(known).unwrap()).unwrap();
        let expected = json!({"job": "import", "id": id, "token": "00c0ffee00c0ffee"});
        assert_eq!(run, expected);
        for missing in ["DUELINE_JOB", "DUELINE_TASK_ID", "DUELINE_TOKEN"] {
            let some = |name: &str| known(name).filter(|_| name != missing);
            let error = run_from(some).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    #[test]
    fn contradicting_and_invalid_flags_are_refused() {
        for args in [
            &["--at", "2030-01-01T00:00:00Z", "--in", "1s"][..],
            &["--payload", "1", "--payload-text", "x"],
            &["--batch", "f", "--wait"],
            &["--batch", "f", "--key", "k"],
            &["--wait-timeout", "1s"],
            &["--priority", "urgent"],
            &["--id", "42"],
            &["--at", "soon"],
            &["--after", "mail"],
            &["--trigger-on", "always"],
            &["--on-conflict", "replace"],
            &["--unique-for", "1h"],
            &["--key", "k", "--max-delay", "1h"],
            &["--key", "k", "--on-conflict", "merge"],
            &["--key", "k", "--unique-until", "later"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
        for (args, expected) in [
            (["--in", "-5s"], "'-5s' is not a duration"),
            (["--timeout", "-1"], "'-1' is not a duration"),
            (["--retries", "-1"], "give a number from 0 to 4294967295"),
            (["--retries", "unlimited"], "only a job can have"),
            (
                ["--at", "10000-01-01T00:00:00Z"],
                "must be an RFC 3339 time between 1970 and 9999",
            ),
        ] {
            let error = parse(&args).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
