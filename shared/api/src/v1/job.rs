//! Job definitions.

use std::{sync::Arc, time::Duration};

use dueline_domain::{Handler, Job, JobName, Policy, Quota, QuotaError, Timestamp, limits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Time, as_text,
    backoff::{BackoffsSpec, RetriesMax, millis},
    handler::HandlerSpec,
};
use crate::ApiError;

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
    /// What runs its tasks; whoever asks for them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<HandlerSpec>,
    /// Runs after the first; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_max: Option<RetriesMax>,
    /// Waits before the next run, by class of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffsSpec>,
    /// After this an enqueued task is handed on again; at least 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enqueue_timeout_ms: Option<u64>,
    /// After this a claimed task that was not begun is handed on again; at least 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_timeout_ms: Option<u64>,
    /// A run ends when nothing was heard of its worker for this long; at least 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout_ms: Option<u64>,
    /// What a heartbeat adds; the heartbeat timeout when absent. Zero makes the heartbeat timeout a hard limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_increment_ms: Option<u64>,
    /// Longest run, whatever the heartbeats say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// How often a claim may be lost before a run began until the task is trashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses_max: Option<u32>,
    /// How long finished tasks are kept; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// How fast tasks may be handed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaSpec>,
    /// Whether tasks wait instead of being handed on; an existing job stays as it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// How fast tasks may be handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaSpec {
    /// Tasks per second; no limit when absent.
    pub rate_per_s: Option<f64>,
    /// How many at once after a pause; one second's worth when absent.
    pub burst: Option<u32>,
}

impl QuotaSpec {
    fn build(self) -> Result<Quota, ApiError> {
        let Self { rate_per_s, burst } = self;
        let quota = Quota { rate_per_s, burst };
        quota.check().map_err(|error| {
            let field = match error {
                QuotaError::Rate => "quota.rate_per_s",
                QuotaError::Burst => "quota.burst",
            };
            ApiError::invalid(field, "invalid_quota", error)
        })?;
        Ok(quota)
    }
}

impl JobSpec {
    /// The definition of `name`, with the timeouts of `default` where it names none. The service that stores it fills
    /// in the times.
    pub fn into_job(
        self,
        name: JobName,
        created_by: Option<Arc<str>>,
        default: &Policy,
    ) -> Result<Job, ApiError> {
        check_queue(self.queue.as_deref(), &name)?;
        let info_max = limits().details_bytes_max;
        let info = self.info.unwrap_or_default();
        if info.len() > info_max {
            let message = format!("has {} bytes; at most {info_max} are allowed", info.len());
            return Err(ApiError::invalid("info", "too_long", message));
        }
        let handler = match self.handler {
            Some(spec) => spec.try_into()?,
            None => Handler::worker(),
        };
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
        };
        check_policy(&policy)?;
        Ok(Job {
            name,
            info: Arc::from(info),
            handler,
            policy,
            quota: self.quota.unwrap_or_default().build()?,
            paused: self.paused.unwrap_or(false),
            created_by: created_by.unwrap_or_default(),
            created_at: Timestamp::EPOCH,
            changed_at: Timestamp::EPOCH,
        })
    }
}

/// A queue that is named must be the job's own.
pub(super) fn check_queue(queue: Option<&str>, job: &JobName) -> Result<(), ApiError> {
    match queue {
        None => Ok(()),
        Some(queue) if queue == job.as_str() => Ok(()),
        Some(queue) if queue.trim().is_empty() => {
            Err(ApiError::invalid("queue", "no_queue", "no queue is named"))
        }
        Some(_) => {
            let message = format!("the queue of this job is '{job}'");
            Err(ApiError::invalid("queue", "unknown_queue", message))
        }
    }
}

/// Checks timeouts; errors name the field on the wire.
pub(super) fn check_policy(policy: &Policy) -> Result<(), ApiError> {
    use dueline_domain::PolicyError::{TooLong, TooShort, Zero};
    policy.check().map_err(|error| {
        let (name, message) = match error {
            Zero(name) => (name, "must be longer than zero".to_owned()),
            TooShort(name, given) => {
                let (min, given) = (millis(Policy::TIMEOUT_MIN), millis(given));
                (name, format!("must be at least {min} ms, not {given} ms"))
            }
            TooLong(name) => (name, "must be at most 366 days".to_owned()),
        };
        ApiError::invalid(format!("{name}_ms"), "invalid_timeout", message)
    })
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
    /// Always null: a job by itself does not repeat.
    #[schema(value_type = Option<String>)]
    pub frequency: Option<String>,
    /// What runs its tasks.
    pub handler: HandlerSpec,
    /// Runs after the first.
    pub retries_max: RetriesMax,
    /// Waits before the next run, by class of failure.
    pub backoff: BackoffsSpec,
    /// After this an enqueued task is handed on again.
    pub enqueue_timeout_ms: u64,
    /// After this a claimed task that was not begun is handed on again.
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
    /// How fast tasks may be handed on.
    pub quota: QuotaSpec,
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
            frequency: None,
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
            quota: QuotaSpec {
                rate_per_s: job.quota.rate_per_s,
                burst: job.quota.burst,
            },
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
            quota: Some(view.quota),
            paused: Some(view.status == "paused"),
        };
        let created_by = Some(Arc::from(view.created_by));
        let job = spec.into_job(view.name, created_by, &Policy::default())?;
        Ok(Self {
            created_at: view.created_at.0,
            changed_at: view.changed_at.0,
            ..job
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
    use crate::v1::parse;

    fn job(text: &str) -> Result<Job, (String, String)> {
        let name = JobName::parse("mail").unwrap();
        parse::<JobSpec>(text.as_bytes())
            .and_then(|spec| spec.into_job(name, None, &Policy::default()))
            .map_err(|error| {
                let field = error.field().unwrap_or_default().to_owned();
                (error.reason().to_owned(), field)
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
                "quota": {"rate_per_s": 2.5, "burst": 7}}"#,
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
            spec.into_job(name, None, &default).unwrap().policy
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
    fn f_045_a_timeout_that_nobody_can_keep_is_refused_with_its_value_and_the_least_one() {
        let name = JobName::parse("mail").unwrap();
        let spec: JobSpec = parse(br#"{"claim_timeout_ms": 1}"#).unwrap();
        let error = spec.into_job(name, None, &Policy::default()).unwrap_err();
        assert!(
            error
                .message()
                .contains("must be at least 100 ms, not 1 ms"),
            "{error}"
        );
        assert_eq!(error.field(), Some("claim_timeout_ms"));
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
