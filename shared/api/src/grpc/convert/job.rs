//! Jobs and their policies.

use std::{sync::Arc, time::Duration};

use dueline_domain::{Backoff, Handler, Job, Policy, Quota, RetryPolicy, limits};

use super::bounds;
use crate::{ApiError, grpc::proto};

impl From<&Job> for proto::Job {
    fn from(job: &Job) -> Self {
        Self {
            name: job.name.to_string(),
            info: job.info.as_ref().to_owned(),
            handler: Some((&job.handler).into()),
            policy: Some((&job.policy).into()),
            quota: Some(proto::Quota {
                rate_per_s: job.quota.rate_per_s,
                burst: job.quota.burst,
            }),
            paused: job.paused,
            created_by: job.created_by.as_ref().to_owned(),
            created_at_ms: job.created_at.millis(),
            changed_at_ms: job.changed_at.millis(),
        }
    }
}

impl TryFrom<proto::Job> for Job {
    type Error = ApiError;

    fn try_from(job: proto::Job) -> Result<Self, ApiError> {
        job_or(job, &Policy::default())
    }
}

/// A job, with `default` where it says nothing about its policy.
pub(crate) fn job_or(job: proto::Job, default: &Policy) -> Result<Job, ApiError> {
    Ok(Job {
        name: bounds::job_name("job.name", &job.name)?,
        info: Arc::from(job.info),
        handler: job.handler.map_or_else(Handler::worker, Handler::from),
        policy: match job.policy {
            Some(policy) => policy_or(policy, default)?,
            None => default.clone(),
        },
        quota: job.quota.map_or_else(Quota::default, |quota| Quota {
            rate_per_s: quota.rate_per_s,
            burst: quota.burst,
        }),
        paused: job.paused,
        created_by: Arc::from(job.created_by),
        created_at: bounds::timestamp("job.created_at_ms", job.created_at_ms)?,
        changed_at: bounds::timestamp("job.changed_at_ms", job.changed_at_ms)?,
    })
}

/// Checks the sizes of a definition that comes in.
pub(crate) fn check_job(job: &Job) -> Result<(), ApiError> {
    let text_max = limits().text_bytes_max;
    let config_max = bounds::HANDLER_CONFIG_BYTES_MAX;
    bounds::size("job.info", job.info.len(), limits().details_bytes_max)?;
    bounds::size("job.created_by", job.created_by.len(), text_max)?;
    bounds::size("job.handler.kind", job.handler.kind.len(), text_max)?;
    bounds::size(
        "job.handler.config_json",
        job.handler.config.len(),
        config_max,
    )?;
    bounds::json_object("job.handler.config_json", &job.handler.config)?;
    job.quota
        .check()
        .map_err(|error| ApiError::invalid("job.quota", "invalid_quota", error))?;
    job.policy
        .check()
        .map_err(|error| ApiError::invalid("job.policy", "bad_policy", error))
}

impl From<&Handler> for proto::Handler {
    fn from(handler: &Handler) -> Self {
        Self {
            kind: handler.kind.as_ref().to_owned(),
            config_json: handler.config.as_ref().to_owned(),
        }
    }
}

impl From<proto::Handler> for Handler {
    fn from(handler: proto::Handler) -> Self {
        let config = if handler.config_json.is_empty() {
            Arc::from("{}")
        } else {
            Arc::from(handler.config_json)
        };
        Self {
            kind: Arc::from(handler.kind),
            config,
        }
    }
}

impl From<&Policy> for proto::Policy {
    fn from(policy: &Policy) -> Self {
        Self {
            retry: Some((&policy.retry).into()),
            enqueue_timeout_ms: Some(bounds::millis(policy.enqueue_timeout)),
            claim_timeout_ms: Some(bounds::millis(policy.claim_timeout)),
            heartbeat_timeout_ms: Some(bounds::millis(policy.heartbeat_timeout)),
            heartbeat_increment_ms: Some(bounds::millis(policy.heartbeat_increment)),
            run_timeout_ms: policy.run_timeout.map(bounds::millis),
            losses_max: Some(policy.losses_max),
            retention_ms: policy.retention.map(bounds::millis),
        }
    }
}

/// A policy, with `default` where it says nothing.
fn policy_or(policy: proto::Policy, default: &Policy) -> Result<Policy, ApiError> {
    let or = |millis: Option<u64>, default| millis.map_or(default, Duration::from_millis);
    let heartbeat_timeout = or(policy.heartbeat_timeout_ms, default.heartbeat_timeout);
    Ok(Policy {
        retry: match policy.retry {
            Some(retry) => RetryPolicy::try_from(retry)?,
            None => default.retry,
        },
        enqueue_timeout: or(policy.enqueue_timeout_ms, default.enqueue_timeout),
        claim_timeout: or(policy.claim_timeout_ms, default.claim_timeout),
        heartbeat_timeout,
        heartbeat_increment: or(policy.heartbeat_increment_ms, heartbeat_timeout),
        run_timeout: policy.run_timeout_ms.map(Duration::from_millis),
        losses_max: policy.losses_max.unwrap_or(default.losses_max),
        retention: policy.retention_ms.map(Duration::from_millis),
    })
}

impl From<&RetryPolicy> for proto::RetryPolicy {
    fn from(retry: &RetryPolicy) -> Self {
        Self {
            retries_max: retry.retries_max,
            standard: Some(retry.standard.into()),
            quick: Some(retry.quick.into()),
            slow: Some(retry.slow.into()),
            rate_limited: Some(retry.rate_limited.into()),
            worker_lost: retry.worker_lost.map(Into::into),
        }
    }
}

impl TryFrom<proto::RetryPolicy> for RetryPolicy {
    type Error = ApiError;

    fn try_from(retry: proto::RetryPolicy) -> Result<Self, ApiError> {
        let default = Self::default();
        let or = |field, given: Option<proto::Backoff>, default| {
            given.map_or(Ok(default), |given| backoff(field, given))
        };
        Ok(Self {
            retries_max: retry.retries_max,
            standard: or(
                "job.policy.retry.standard",
                retry.standard,
                default.standard,
            )?,
            quick: or("job.policy.retry.quick", retry.quick, default.quick)?,
            slow: or("job.policy.retry.slow", retry.slow, default.slow)?,
            rate_limited: or(
                "job.policy.retry.rate_limited",
                retry.rate_limited,
                default.rate_limited,
            )?,
            worker_lost: retry
                .worker_lost
                .map(|given| backoff("job.policy.retry.worker_lost", given))
                .transpose()?,
        })
    }
}

impl From<Backoff> for proto::Backoff {
    fn from(backoff: Backoff) -> Self {
        Self {
            initial_ms: bounds::millis(backoff.initial()),
            multiplier: backoff.multiplier(),
            jitter: backoff.jitter(),
            max_ms: bounds::millis(backoff.max()),
        }
    }
}

/// Parses a backoff.
pub(super) fn backoff(field: &'static str, given: proto::Backoff) -> Result<Backoff, ApiError> {
    Backoff::new(
        Duration::from_millis(given.initial_ms),
        given.multiplier,
        given.jitter,
        Duration::from_millis(given.max_ms),
    )
    .map_err(|error| ApiError::invalid(field, "bad_backoff", error))
}
