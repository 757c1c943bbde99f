//! Job definitions.

use std::{sync::Arc, time::Duration};

use dueline_domain::{FairShare, Handler, Job, JobName, Policy, Quota, Sink};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    Time, as_text,
    backoff::{BackoffsSpec, RetriesMax, millis},
    handler::HandlerSpec,
};
use crate::{ApiError, ErrorReason, operation::ShownJob};

/// A job definition to store. What is left out has its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// Must be the job's own name when given: each job has a queue of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What runs its tasks; the workers that poll for this job when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<HandlerSpec>,
    /// Runs after the first; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_max: Option<RetriesMax>,
    /// Waits before the next run, by class of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffsSpec>,
    /// After this an enqueued task is enqueued again; at least 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enqueue_timeout_ms: Option<u64>,
    /// After this a claimed task that has not started is enqueued again; at least 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_timeout_ms: Option<u64>,
    /// A run ends when nothing was heard of its worker for this long; at least 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout_ms: Option<u64>,
    /// What a heartbeat adds; the heartbeat timeout when absent. Zero makes the heartbeat timeout a hard limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_increment_ms: Option<u64>,
    /// Longest run, even with heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// How often a claim may be lost before a run began until the task is trashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses_max: Option<u32>,
    /// How long finished tasks are kept; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// Where the record of each finished task is delivered before the task may be deleted: `file:NAME`, `http://…`,
    /// `https://…` or `sqs://QUEUE`; nowhere when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "file:mail.ndjson")]
    pub sink: Option<String>,
    /// How fast tasks may be enqueued, and how many run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaSpec>,
    /// Makes the fairness keys of the tasks take turns; an existing job stays as it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<FairShareSpec>,
    /// Whether due tasks wait instead of being enqueued; an existing job stays as it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// How fast tasks may be enqueued, and how many run at once. Tasks above the quota wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaSpec {
    /// Tasks per second; no limit when absent.
    pub rate_per_s: Option<f64>,
    /// How many at once after a pause; one second's worth when absent.
    pub burst: Option<u32>,
    /// How many may be enqueued or owned by workers at the same time, from 1 to 1,000; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}

/// The fairness keys of a job take turns, so that a key with many tasks does not delay those of a key with few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FairShareSpec {
    /// How many tasks of one fairness key may be enqueued or owned by workers at the same time, from 1 to 1,000; no limit
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}

impl JobSpec {
    /// The definition of `name`, not checked yet: [`crate::check::job`]. Timeouts that it does not set are those of
    /// `default`. The service that stores it sets the times.
    pub fn into_job(self, name: JobName, default: &Policy) -> Result<Job, ApiError> {
        check_queue(self.queue.as_deref(), &name)?;
        let info = self.info.unwrap_or_default();
        let handler = self.handler.map_or_else(Handler::worker, Into::into);
        let quota = self.quota.unwrap_or_default();
        let duration = |ms: Option<u64>, or: Duration| ms.map_or(or, Duration::from_millis);
        let heartbeat_timeout = duration(self.heartbeat_timeout_ms, default.heartbeat_timeout);
        let policy = Policy {
            retry: self.backoff.unwrap_or_default().build(self.retries_max)?,
            enqueue_timeout: duration(self.enqueue_timeout_ms, default.enqueue_timeout),
            claim_timeout: duration(self.claim_timeout_ms, default.claim_timeout),
            heartbeat_timeout,
            heartbeat_increment: duration(self.heartbeat_increment_ms, heartbeat_timeout),
            run_timeout: self.run_timeout_ms.map(Duration::from_millis),
            losses_max: self.losses_max.unwrap_or(default.losses_max),
            retention: self.retention_ms.map(Duration::from_millis),
            sink: self.sink.map(|uri| sink("sink", &uri)).transpose()?,
        };
        Ok(Job {
            info: Arc::from(info),
            handler,
            policy,
            quota: Quota {
                rate_per_s: quota.rate_per_s,
                burst: quota.burst,
                running_max: quota.running_max,
            },
            fair_share: self.fair_share.map(|share| FairShare {
                running_max: share.running_max,
            }),
            paused: self.paused.unwrap_or(false),
            ..Job::new(name)
        })
    }
}

/// Parses a sink; an error names `field`.
pub(crate) fn sink(field: &'static str, uri: &str) -> Result<Sink, ApiError> {
    Sink::parse(uri).map_err(|error| ApiError::invalid(field, ErrorReason::InvalidSink, error))
}

/// A queue that is named must be the job's own.
pub(super) fn check_queue(queue: Option<&str>, job: &JobName) -> Result<(), ApiError> {
    match queue {
        None => Ok(()),
        Some(queue) if queue == job.as_str() => Ok(()),
        Some(queue) if queue.trim().is_empty() => Err(ApiError::invalid(
            "queue",
            ErrorReason::NoQueue,
            "no queue is named",
        )),
        Some(_) => {
            let message = format!("the queue of this job is '{job}'");
            Err(ApiError::invalid(
                "queue",
                ErrorReason::UnknownQueue,
                message,
            ))
        }
    }
}

/// A stored job definition.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// The name, which is the id.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "send-mail")]
    pub id: JobName,
    /// The name again, for those who look for it under this word.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "send-mail")]
    pub name: JobName,
    /// What it is for.
    pub info: String,
    /// `active` or `paused`.
    #[schema(example = "active")]
    pub status: String,
    /// The job's own queue.
    pub queue: String,
    /// When it was made.
    pub created_at: Time,
    /// Who made it.
    pub created_by: String,
    /// When it was last changed.
    pub changed_at: Time,
    /// What runs its tasks.
    pub handler: HandlerSpec,
    /// Runs after the first.
    pub retries_max: RetriesMax,
    /// Waits before the next run, by class of failure.
    pub backoff: BackoffsSpec,
    /// After this an enqueued task is enqueued again.
    pub enqueue_timeout_ms: u64,
    /// After this a claimed task that has not started is enqueued again.
    pub claim_timeout_ms: u64,
    /// A run ends when nothing was heard of its worker for this long.
    pub heartbeat_timeout_ms: u64,
    /// What a heartbeat adds.
    pub heartbeat_increment_ms: u64,
    /// Longest run.
    pub run_timeout_ms: Option<u64>,
    /// How often a claim may be lost before a run began until the task is trashed.
    pub losses_max: u32,
    /// How long finished tasks are kept.
    pub retention_ms: Option<u64>,
    /// Where the record of each finished task is delivered before the task may be deleted.
    pub sink: Option<String>,
    /// How fast tasks may be enqueued.
    pub quota: QuotaSpec,
    /// How fairness keys share the workers; absent if they don't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<FairShareSpec>,
}

impl TryFrom<&Job> for JobView {
    type Error = ApiError;

    fn try_from(job: &Job) -> Result<Self, ApiError> {
        let policy = &job.policy;
        Ok(Self {
            id: job.name.clone(),
            name: job.name.clone(),
            info: job.info.to_string(),
            status: if job.paused { "paused" } else { "active" }.to_owned(),
            queue: job.name.to_string(),
            created_at: job.created_at.into(),
            created_by: job.created_by.to_string(),
            changed_at: job.changed_at.into(),
            handler: (&job.handler).try_into()?,
            retries_max: policy.retry.retries_max.into(),
            backoff: (&policy.retry).into(),
            enqueue_timeout_ms: millis(policy.enqueue_timeout),
            claim_timeout_ms: millis(policy.claim_timeout),
            heartbeat_timeout_ms: millis(policy.heartbeat_timeout),
            heartbeat_increment_ms: millis(policy.heartbeat_increment),
            run_timeout_ms: policy.run_timeout.map(millis),
            losses_max: policy.losses_max,
            retention_ms: policy.retention.map(millis),
            sink: policy.sink.as_ref().map(ToString::to_string),
            quota: QuotaSpec {
                rate_per_s: job.quota.rate_per_s,
                burst: job.quota.burst,
                running_max: job.quota.running_max,
            },
            fair_share: job.fair_share.map(|share| FairShareSpec {
                running_max: share.running_max,
            }),
        })
    }
}

impl TryFrom<JobView> for Job {
    type Error = ApiError;

    fn try_from(view: JobView) -> Result<Self, ApiError> {
        let spec = JobSpec {
            info: Some(view.info),
            queue: Some(view.queue),
            handler: Some(view.handler),
            retries_max: Some(view.retries_max),
            backoff: Some(view.backoff),
            enqueue_timeout_ms: Some(view.enqueue_timeout_ms),
            claim_timeout_ms: Some(view.claim_timeout_ms),
            heartbeat_timeout_ms: Some(view.heartbeat_timeout_ms),
            heartbeat_increment_ms: Some(view.heartbeat_increment_ms),
            run_timeout_ms: view.run_timeout_ms,
            losses_max: Some(view.losses_max),
            retention_ms: view.retention_ms,
            sink: view.sink,
            quota: Some(view.quota),
            fair_share: view.fair_share,
            paused: Some(view.status == "paused"),
        };
        let job = spec.into_job(view.name, &Policy::default())?;
        Ok(Self {
            created_by: Arc::from(view.created_by),
            created_at: view.created_at.0,
            changed_at: view.changed_at.0,
            ..job
        })
    }
}

/// A stored job definition, and when the job fires.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ShownJobView {
    /// The definition.
    #[serde(flatten)]
    pub job: JobView,
    /// The rule of its schedule, if the job has exactly one and that one fires again.
    #[schema(example = "30 2 * * * Europe/Berlin")]
    pub frequency: Option<String>,
}

/// Read in two steps, because a flattened struct cannot contain raw JSON, which the settings of a handler are.
impl<'de> Deserialize<'de> for ShownJobView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Beside {
            frequency: Option<String>,
        }
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let job = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let Beside { frequency } = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self { job, frequency })
    }
}

impl TryFrom<&ShownJob> for ShownJobView {
    type Error = ApiError;

    fn try_from(shown: &ShownJob) -> Result<Self, ApiError> {
        Ok(Self {
            job: JobView::try_from(&*shown.job)?,
            frequency: shown.frequency.clone(),
        })
    }
}

/// All jobs by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobView>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check, v1::parse};

    fn job(text: &str) -> Result<Job, (String, String)> {
        let name = JobName::parse("mail").unwrap();
        parse::<JobSpec>(text.as_bytes())
            .and_then(|spec| spec.into_job(name, &Policy::default()))
            .and_then(|job| check::job(&job).map(|()| job))
            .map_err(|error| {
                let field = error.field().unwrap_or_default().to_owned();
                (error.reason().to_string(), field)
            })
    }

    #[test]
    fn f_015_a_definition_survives_the_way_out_and_back_in() {
        for text in [
            "{}",
            r#"{"info": "mails", "queue": "mail", "retries_max": "unlimited", "paused": true,
                "handler": {"kind": "exec", "config": {"command": ["cat"]}},
                "backoff": {"standard": {"initial_ms": 2000, "multiplier": 1.5, "jitter": 0, "max_ms": 9000},
                            "worker_lost": {"initial_ms": 1}},
                "enqueue_timeout_ms": 100, "claim_timeout_ms": 200, "heartbeat_timeout_ms": 300,
                "heartbeat_increment_ms": 0, "run_timeout_ms": 4, "losses_max": 5, "retention_ms": 0,
                "sink": "file:done.ndjson",
                "quota": {"rate_per_s": 2.5, "burst": 7, "running_max": 3}, "fair_share": {"running_max": 2}}"#,
        ] {
            let job = job(text).unwrap();
            let view = JobView::try_from(&job).unwrap();
            let json = serde_json::to_vec(&view).unwrap();
            let back: JobView = serde_json::from_slice(&json).unwrap();
            assert_eq!(Job::try_from(back).unwrap(), job);
        }
        let default = job("{}").unwrap();
        assert_eq!(default.policy, Policy::default());
        assert_eq!(default.handler, Handler::worker());
    }

    #[test]
    fn a_heartbeat_adds_the_heartbeat_timeout_unless_told_otherwise() {
        let policy = job(r#"{"heartbeat_timeout_ms": 30000}"#).unwrap().policy;
        assert_eq!(policy.heartbeat_increment, Duration::from_secs(30));
    }

    #[test]
    fn what_a_definition_leaves_out_is_the_servers_default_and_what_it_names_is_not() {
        let s = Duration::from_secs;
        let default = Policy {
            enqueue_timeout: s(1),
            claim_timeout: s(2),
            heartbeat_timeout: s(3),
            heartbeat_increment: s(3),
            ..Policy::default()
        };
        let policy = |text: &str| {
            let spec: JobSpec = parse(text.as_bytes()).unwrap();
            let name = JobName::parse("mail").unwrap();
            spec.into_job(name, &default).unwrap().policy
        };
        assert_eq!(policy("{}"), default);
        let some = policy(r#"{"claim_timeout_ms": 7000, "heartbeat_timeout_ms": 9000}"#);
        assert_eq!(
            some,
            Policy {
                claim_timeout: s(7),
                heartbeat_timeout: s(9),
                heartbeat_increment: s(9),
                ..default.clone()
            }
        );
    }

    #[test]
    fn f_015_a_wrong_definition_is_refused_with_the_field() {
        for (text, reason, field) in [
            (r#"{"queue": " "}"#, "no_queue", "queue"),
            (r#"{"queue": "other"}"#, "unknown_queue", "queue"),
            (
                r#"{"claim_timeout_ms": 0}"#,
                "invalid_timeout",
                "claim_timeout_ms",
            ),
            (
                r#"{"enqueue_timeout_ms": 99}"#,
                "invalid_timeout",
                "enqueue_timeout_ms",
            ),
            (
                r#"{"heartbeat_timeout_ms": 1}"#,
                "invalid_timeout",
                "heartbeat_timeout_ms",
            ),
            (
                r#"{"run_timeout_ms": 0}"#,
                "invalid_timeout",
                "run_timeout_ms",
            ),
            (
                r#"{"run_timeout_ms": 99999999999999}"#,
                "invalid_timeout",
                "run_timeout_ms",
            ),
            (r#"{"retries_max": -1}"#, "invalid_type", "retries_max"),
            (r#"{"retries_max": "many"}"#, "invalid_value", "retries_max"),
            (
                r#"{"quota": {"rate_per_s": 0}}"#,
                "invalid_quota",
                "quota.rate_per_s",
            ),
            (r#"{"quota": {"burst": 0}}"#, "invalid_quota", "quota.burst"),
            (r#"{"created_at": 1}"#, "unknown_field", "created_at"),
        ] {
            assert_eq!(job(text), Err((reason.into(), field.into())), "{text}");
        }
    }

    #[test]
    fn f_045_a_timeout_too_short_to_answer_within_is_refused_with_its_value_and_the_minimum() {
        let name = JobName::parse("mail").unwrap();
        let spec: JobSpec = parse(br#"{"claim_timeout_ms": 1}"#).unwrap();
        let job = spec.into_job(name, &Policy::default()).unwrap();
        let error = check::job(&job).unwrap_err();
        assert!(
            error
                .message()
                .contains("must be at least 100 ms, not 1 ms"),
            "{error}"
        );
        assert_eq!(error.field(), Some("claim_timeout_ms"));
    }

    #[test]
    fn a_job_with_settings_of_its_handler_and_a_frequency_survives_json() {
        let spec = br#"{"handler": {"kind": "exec", "config": {"command": ["true"]}}}"#;
        let spec: JobSpec = parse(spec).unwrap();
        let name = JobName::parse("mail").unwrap();
        let job = Arc::new(spec.into_job(name, &Policy::default()).unwrap());
        let frequency = Some("@daily UTC".to_owned());
        let shown = ShownJobView::try_from(&ShownJob { job, frequency }).unwrap();
        let json = serde_json::to_string(&shown).unwrap();
        let read: ShownJobView = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
        assert_eq!(read.frequency.as_deref(), Some("@daily UTC"));
        let config = read.job.handler.config.unwrap();
        assert_eq!(config.get(), r#"{"command": ["true"]}"#);
    }

    #[test]
    fn f_056_bad_numbers_make_no_backoff() {
        for (numbers, reason, field) in [
            (r#"{"multiplier": 0.5}"#, "invalid_backoff", "backoff.slow"),
            (r#"{"jitter": -0.1}"#, "invalid_backoff", "backoff.slow"),
            (
                r#"{"initial_ms": 5, "max_ms": 4}"#,
                "invalid_backoff",
                "backoff.slow",
            ),
            (
                r#"{"max_ms": 99999999999999}"#,
                "too_long",
                "backoff.slow.max_ms",
            ),
            (
                r#"{"initial_ms": -1}"#,
                "invalid_value",
                "backoff.slow.initial_ms",
            ),
        ] {
            let text = format!(r#"{{"backoff": {{"slow": {numbers}}}}}"#);
            assert_eq!(job(&text), Err((reason.into(), field.into())), "{text}");
        }
        let long = job(r#"{"backoff": {"standard": {"initial_ms": 86400000}}}"#).unwrap();
        assert_eq!(
            long.policy.retry.standard.max(),
            Duration::from_secs(86_400)
        );
    }
}
