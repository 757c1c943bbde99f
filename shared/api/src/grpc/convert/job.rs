//! Jobs and their policies.

use std::{sync::Arc, time::Duration};

use dueline_domain::{Backoff, FairShare, Handler, Job, Policy, Quota, RetryPolicy};

use super::field;
use crate::{
    ApiError,
    grpc::proto,
    v1::{BackoffSpec, BackoffsSpec, sink},
};

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
                running_max: job.quota.running_max,
            }),
            fair_share: job.fair_share.map(|share| proto::FairShare {
                running_max: share.running_max,
            }),
            paused: Some(job.paused),
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
        name: field::job_name("name", &job.name)?,
        info: Arc::from(job.info),
        handler: job.handler.map_or_else(Handler::worker, Handler::from),
        policy: match job.policy {
            Some(policy) => policy_or(policy, default)?,
            None => default.clone(),
        },
        quota: job.quota.map_or_else(Quota::default, |quota| Quota {
            rate_per_s: quota.rate_per_s,
            burst: quota.burst,
            running_max: quota.running_max,
        }),
        fair_share: job.fair_share.map(|share| FairShare {
            running_max: share.running_max,
        }),
        paused: job.paused.unwrap_or(false),
        created_by: Arc::from(job.created_by),
        created_at: field::timestamp("created_at", job.created_at_ms)?,
        changed_at: field::timestamp("changed_at", job.changed_at_ms)?,
    })
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
            enqueue_timeout_ms: Some(field::millis(policy.enqueue_timeout)),
            claim_timeout_ms: Some(field::millis(policy.claim_timeout)),
            heartbeat_timeout_ms: Some(field::millis(policy.heartbeat_timeout)),
            heartbeat_increment_ms: Some(field::millis(policy.heartbeat_increment)),
            run_timeout_ms: policy.run_timeout.map(field::millis),
            losses_max: Some(policy.losses_max),
            retention_ms: policy.retention.map(field::millis),
            sink: policy.sink.as_ref().map(ToString::to_string),
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
        sink: policy.sink.map(|uri| sink("sink", &uri)).transpose()?,
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
        let spec = |backoff: Option<proto::Backoff>| backoff.map(BackoffSpec::from);
        let backoffs = BackoffsSpec {
            standard: spec(retry.standard),
            quick: spec(retry.quick),
            slow: spec(retry.slow),
            rate_limited: spec(retry.rate_limited),
            worker_lost: spec(retry.worker_lost),
        };
        Ok(Self {
            retries_max: retry.retries_max,
            ..backoffs.build(None)?
        })
    }
}

impl From<Backoff> for proto::Backoff {
    fn from(backoff: Backoff) -> Self {
        Self {
            initial_ms: field::millis(backoff.initial()),
            multiplier: backoff.multiplier(),
            jitter: backoff.jitter(),
            max_ms: field::millis(backoff.max()),
        }
    }
}

impl From<proto::Backoff> for BackoffSpec {
    fn from(backoff: proto::Backoff) -> Self {
        Self {
            initial_ms: Some(backoff.initial_ms),
            multiplier: Some(backoff.multiplier),
            jitter: Some(backoff.jitter),
            max_ms: Some(backoff.max_ms),
        }
    }
}
