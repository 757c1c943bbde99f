//! Tasks to store.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_domain::{
    Due, JobName, NewTask, Overrides, Priority, RetryPolicy, TaskId, TaskOptions, Weight,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    BackoffSpec, FromRunSpec, PredecessorSpec, Time, UniqueSpec,
    family::family,
    job::check_queue,
    payload::{Forms, Given, raw},
};
use crate::{ApiError, ErrorReason, check::field};

/// A task to store. All fields may be left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSubmit {
    /// A UUID. The same submit with the same id is one task, so a client that lost the answer may repeat it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub id: Option<String>,
    /// When it is due; at once when absent or past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// When it is due, from now. Not together with `run_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// `very_low`, `low`, `normal`, `high`, `very_high`, or a number from -1000 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<PrioritySpec>,
    /// What it counts against a worker's concurrency, from 1 to 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub weight: Option<i64>,
    /// What the handler gets: any JSON value; its text is kept byte for byte.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// What the handler gets: any bytes, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// What the handler gets: the bytes of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_text: Option<String>,
    /// Media type of the payload; follows from its form when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// A name for people; need not be unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A JSON object for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<Box<RawValue>>,
    /// Words to filter by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Idempotency key: one task per key within the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long the task holds its key, and what this submit does when another task holds it. Without this, a task holds its
    /// key as long as it is kept, an equal submit is answered with it, and another one is a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueSpec>,
    /// The key with which the task takes turns with others of a job that has a fair share, such as the name of a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_key: Option<String>,
    /// Must be the job's own queue when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Runs after the first, instead of the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_max: Option<u32>,
    /// Waits of the standard class, instead of the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffSpec>,
    /// Heartbeat timeout instead of the job's, at least 100; `timeout_ms` is another word for it.
    #[serde(default, alias = "timeout_ms", skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout_ms: Option<u64>,
    /// What a heartbeat adds; the heartbeat timeout when only that is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_increment_ms: Option<u64>,
    /// Longest run, instead of the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// Tasks that must end before this one goes on, at most 32. They exist, or are tasks of the same batch with an `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<PredecessorSpec>>,
    /// Which of their ends let it go on: `success` (each succeeds), `failure` (each ends without success) or `always`;
    /// `success` when absent. Any other end cancels it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_on: Option<String>,
    /// The parent. The task goes on when the parent's own run has succeeded; those that wait for the parent wait for it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<PredecessorSpec>,
    /// Whether a child of this task that does not succeed makes it, for those that wait for it, a task that has not succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on_child: Option<bool>,
    /// The run from inside which the task is submitted. It goes on when that run succeeds, and is discarded otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_run: Option<FromRunSpec>,
}

impl TaskSubmit {
    /// The task to store, not checked yet: [`crate::check::new_task`]. `new_id` makes an id for a submit without one.
    pub fn into_task(
        self,
        job: JobName,
        new_id: impl FnOnce() -> TaskId,
    ) -> Result<NewTask, ApiError> {
        check_queue(self.queue.as_deref(), &job)?;
        let id = self.id.map(|id| field::task_id("id", &id)).transpose()?;
        let due = due(self.run_at, self.delay_ms)?;
        let priority = priority(self.priority)?;
        let weight = weight(self.weight)?;
        let forms = Forms {
            field: "payload",
            json: self.payload,
            base64: self.payload_base64,
            text: self.payload_text,
        };
        let (payload, default_type) = match forms.take()? {
            Some(Given {
                bytes,
                content_type,
            }) => (bytes, content_type),
            None => (Bytes::new(), None),
        };
        let text = |text: Option<String>| text.map(Arc::from);
        let options = TaskOptions {
            name: text(self.name),
            details: self.details.map(|json| Arc::from(json.get())),
            tags: self
                .tags
                .unwrap_or_default()
                .into_iter()
                .map(Arc::from)
                .collect(),
            key: text(self.key),
            unique: self
                .unique
                .map(|unique| unique.unique().map(Box::new))
                .transpose()?,
            fairness_key: text(self.fairness_key),
            takes_turns: false,
            created_by: None,
            content_type: text(self.content_type).or_else(|| default_type.map(Arc::from)),
            trace: None,
            overrides: overrides(
                self.retries_max,
                self.backoff,
                self.heartbeat_timeout_ms,
                self.heartbeat_increment_ms,
                self.run_timeout_ms,
            )?,
            original_run_at: None,
            firing: None,
            family: family(
                &job,
                self.parent,
                self.after,
                self.trigger_on.as_deref(),
                self.fail_on_child.unwrap_or_default(),
                self.from_run,
            )?,
        };
        Ok(NewTask {
            id_is_given: id.is_some(),
            id: id.unwrap_or_else(new_id),
            job,
            due,
            priority: priority.unwrap_or_default(),
            weight: weight.unwrap_or_default(),
            payload,
            options: (options != TaskOptions::default()).then(|| Box::new(options)),
        })
    }
}

/// When a task is due, of which at most one form is given.
pub(super) fn due(run_at: Option<Time>, delay_ms: Option<u64>) -> Result<Due, ApiError> {
    match (run_at, delay_ms) {
        (Some(_), Some(_)) => {
            let message = "give only one of run_at and delay_ms";
            Err(ApiError::invalid("run_at", ErrorReason::Ambiguous, message))
        }
        (Some(time), None) => Ok(Due::At(time.0)),
        (None, Some(ms)) => Ok(Due::After(Duration::from_millis(ms))),
        (None, None) => Ok(Due::Now),
    }
}

pub(super) fn priority(spec: Option<PrioritySpec>) -> Result<Option<Priority>, ApiError> {
    spec.map(|spec| match spec {
        PrioritySpec::Number(number) => Priority::new(number),
        PrioritySpec::Name(name) => name.parse(),
    })
    .transpose()
    .map_err(|error| ApiError::invalid("priority", ErrorReason::InvalidPriority, error))
}

pub(super) fn weight(number: Option<i64>) -> Result<Option<Weight>, ApiError> {
    number
        .map(Weight::new)
        .transpose()
        .map_err(|error| ApiError::invalid("weight", ErrorReason::InvalidWeight, error))
}

pub(crate) fn overrides(
    retries_max: Option<u32>,
    backoff: Option<BackoffSpec>,
    heartbeat_timeout_ms: Option<u64>,
    heartbeat_increment_ms: Option<u64>,
    run_timeout_ms: Option<u64>,
) -> Result<Option<Overrides>, ApiError> {
    let backoff = backoff
        .map(|spec| spec.build("backoff", RetryPolicy::default().standard))
        .transpose()?;
    let overrides = Overrides {
        retries_max,
        backoff,
        heartbeat_timeout: heartbeat_timeout_ms.map(Duration::from_millis),
        heartbeat_increment: heartbeat_increment_ms.map(Duration::from_millis),
        run_timeout: run_timeout_ms.map(Duration::from_millis),
    };
    Ok((overrides != Overrides::default()).then_some(overrides))
}

/// A priority by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrioritySpec {
    /// By number.
    Number(i64),
    /// By name.
    Name(String),
}

impl Serialize for PrioritySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Name(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for PrioritySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = PrioritySpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a priority or a whole number")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<PrioritySpec, E> {
                Ok(PrioritySpec::Number(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<PrioritySpec, E> {
                Ok(PrioritySpec::Number(
                    i64::try_from(number).unwrap_or(i64::MAX),
                ))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<PrioritySpec, E> {
                Ok(PrioritySpec::Name(name.to_owned()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl utoipa::PartialSchema for PrioritySpec {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
        OneOfBuilder::new()
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .minimum(Some(Priority::MIN))
                    .maximum(Some(Priority::MAX)),
            )
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .enum_values(Some(Priority::LEVELS.map(|(name, _)| name))),
            )
            .description(Some("Higher goes first. Normal is 0."))
            .into()
    }
}

impl ToSchema for PrioritySpec {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check, v1::parse};
    use dueline_domain::Timestamp;

    fn submit(text: &str) -> Result<NewTask, (String, String)> {
        let job = JobName::parse("mail").unwrap();
        parse::<TaskSubmit>(text.as_bytes())
            .and_then(|task| task.into_task(job, || TaskId::from_bytes([1; 16])))
            .and_then(|mut task| check::new_task(&mut task).map(|()| task))
            .map_err(|error| {
                let field = error.field().unwrap_or_default().to_owned();
                (error.reason().to_string(), field)
            })
    }

    #[test]
    fn f_005_json_is_kept_byte_for_byte() {
        for json in [r#"{"b": 1.0,  "a":"ü\u00fc"}"#, "null", "7", "\"x\"", "[ ]"] {
            let task = submit(&format!(r#"{{"payload": {json} }}"#)).unwrap();
            assert_eq!(task.payload, json);
            assert_eq!(task.options, None);
        }
        assert_eq!(submit("{}").unwrap().payload, "");
        let task = submit(r#"{"payload_base64": "AA=="}"#).unwrap();
        assert_eq!(task.payload, &b"\0"[..]);
        let task = submit(r#"{"payload_text": "a\nb"}"#).unwrap();
        assert_eq!(task.payload, "a\nb");
    }

    #[test]
    fn f_009_a_time_is_told_as_text_or_number_or_delay() {
        let due = |text: &str| submit(text).unwrap().due;
        let five = Timestamp::clamped(5_000);
        assert_eq!(due(r#"{"run_at": "1970-01-01T00:00:05Z"}"#), Due::At(five));
        assert_eq!(due(r#"{"run_at": 5000}"#), Due::At(five));
        let delay = Duration::from_secs(5);
        assert_eq!(due(r#"{"delay_ms": 5000}"#), Due::After(delay));
        assert_eq!(due("{}"), Due::Now);
    }

    #[test]
    fn f_023_a_priority_is_told_by_name_or_number() {
        let priority = |text: &str| submit(text).unwrap().priority.get();
        assert_eq!(priority(r#"{"priority": "High"}"#), 50);
        assert_eq!(priority(r#"{"priority": 51}"#), 51);
        assert_eq!(priority(r#"{"priority": -1000}"#), -1000);
        assert_eq!(priority("{}"), 0);
    }

    #[test]
    fn a_task_may_ask_for_its_own_retries_and_timeouts() {
        let task = submit(r#"{"retries_max": 0, "timeout_ms": 700, "backoff": {"initial_ms": 9}}"#);
        let overrides = task.unwrap().options.unwrap().overrides.unwrap();
        assert_eq!(overrides.retries_max, Some(0));
        assert_eq!(
            overrides.heartbeat_timeout,
            Some(Duration::from_millis(700))
        );
        assert_eq!(overrides.heartbeat_increment, None);
        assert_eq!(
            overrides.backoff.unwrap().initial(),
            Duration::from_millis(9)
        );
    }

    #[test]
    fn f_006_f_008_f_034_what_makes_no_task_is_refused_with_the_field() {
        let long = "x".repeat(257);
        let many: Vec<String> = (0..17).map(|n| format!("\"{n}\"")).collect();
        for (text, reason, field) in [
            (r#"{"weight": 0}"#.to_owned(), "invalid_weight", "weight"),
            (r#"{"weight": 10001}"#.into(), "invalid_weight", "weight"),
            (
                r#"{"priority": "urgent"}"#.into(),
                "invalid_priority",
                "priority",
            ),
            (
                r#"{"priority": 1001}"#.into(),
                "invalid_priority",
                "priority",
            ),
            (r#"{"details": []}"#.into(), "invalid_type", "details"),
            (r#"{"details": 7}"#.into(), "invalid_type", "details"),
            (r#"{"queue": ""}"#.into(), "no_queue", "queue"),
            (r#"{"queue": "  "}"#.into(), "no_queue", "queue"),
            (r#"{"queue": "other"}"#.into(), "unknown_queue", "queue"),
            (
                r#"{"run_at": 1, "delay_ms": 1}"#.into(),
                "ambiguous",
                "run_at",
            ),
            (
                r#"{"payload": 1, "payload_text": ""}"#.into(),
                "ambiguous",
                "payload",
            ),
            (
                r#"{"payload_base64": "*"}"#.into(),
                "invalid_base64",
                "payload_base64",
            ),
            (r#"{"name": " "}"#.into(), "blank", "name"),
            (r#"{"key": ""}"#.into(), "blank", "key"),
            (format!(r#"{{"key": "{long}"}}"#), "too_long", "key"),
            (
                format!(r#"{{"tags": [{}]}}"#, many.join(",")),
                "too_many",
                "tags",
            ),
            (
                r#"{"timeout_ms": 99}"#.into(),
                "invalid_timeout",
                "heartbeat_timeout_ms",
            ),
            (
                r#"{"retries_max": "unlimited"}"#.into(),
                "invalid_type",
                "retries_max",
            ),
            (
                r#"{"backoff": {"multiplier": 0}}"#.into(),
                "invalid_backoff",
                "backoff",
            ),
            (
                format!(r#"{{"payload": {}{}}}"#, "[".repeat(129), "]".repeat(129)),
                "too_deep",
                "payload",
            ),
        ] {
            let got = submit(&text);
            assert_eq!(got, Err((reason.into(), field.into())), "{text:.99}");
        }
    }

    #[test]
    fn what_a_client_writes_is_what_a_server_reads() {
        let spec = TaskSubmit {
            id: Some(TaskId::from_bytes([7; 16]).to_string()),
            run_at: Some(Time(Timestamp::clamped(9_999))),
            priority: Some(PrioritySpec::Name("low".into())),
            weight: Some(2),
            payload: Some(RawValue::from_string("null".into()).unwrap()),
            tags: Some(vec!["a".into(), "a".into(), "b".into()]),
            details: Some(RawValue::from_string("{\"k\": 1}".into()).unwrap()),
            ..TaskSubmit::default()
        };
        let task = submit(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert!(task.id_is_given);
        assert_eq!(task.id, TaskId::from_bytes([7; 16]));
        assert_eq!(task.due, Due::At(Timestamp::clamped(9_999)));
        assert_eq!(task.payload, "null");
        let options = task.options.unwrap();
        assert_eq!(options.tags, [Arc::from("a"), Arc::from("b")]);
        assert_eq!(options.details.as_deref(), Some("{\"k\": 1}"));
    }
}
