//! Jobs: named definitions that tasks belong to.

use std::{sync::Arc, time::Duration};

use crate::{JobName, Overrides, RetryPolicy, Timestamp};

/// A named definition: who runs its tasks, when they are tried again, how long things may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The name; also names the queue.
    pub name: JobName,
    /// What it is for, in the owner's words.
    pub info: Arc<str>,
    /// What runs its tasks.
    pub handler: Handler,
    /// Retries and timeouts.
    pub policy: Policy,
    /// How fast tasks may be handed on.
    pub quota: Quota,
    /// Whether tasks wait instead of being handed on.
    pub paused: bool,
    /// Who made it.
    pub created_by: Arc<str>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

impl Job {
    /// Whether a task that is due may be handed on by whoever submits it. A paused job, or one with a quota, leaves
    /// that to the consumer.
    pub const fn hands_on_at_once(&self) -> bool {
        !self.paused && self.quota.rate_per_s.is_none()
    }
}

/// What runs the tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// `worker` (code that registered itself under the job's name), or a built-in: `exec`, `http`, `noop`.
    pub kind: Arc<str>,
    /// Settings of a built-in handler as a JSON object; the handler parses it.
    pub config: Arc<str>,
}

impl Handler {
    /// Tasks are run by whoever asks for work of this job.
    pub fn worker() -> Self {
        let (kind, config) = (Arc::from("worker"), Arc::from("{}"));
        Self { kind, config }
    }
}

/// How long a job's tasks may stay in each state, and how they are tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Retries and backoff.
    pub retry: RetryPolicy,
    /// After this an enqueued task is handed on again.
    pub enqueue_timeout: Duration,
    /// After this a claimed task that was not begun is handed on again.
    pub claim_timeout: Duration,
    /// A run ends when nothing was heard of its worker for this long.
    pub heartbeat_timeout: Duration,
    /// What a heartbeat adds: the lease ends at the later of its present end and now plus this. Zero makes
    /// `heartbeat_timeout` a hard limit.
    pub heartbeat_increment: Duration,
    /// Longest run, whatever the heartbeats say.
    pub run_timeout: Option<Duration>,
    /// How often a claim may be lost before a run began until the task counts as poison and is trashed.
    pub losses_max: u32,
    /// How long a finished task is kept; `None` keeps it.
    pub retention: Option<Duration>,
}

/// Numbers that make no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A timeout of zero.
    #[error("{0} must be longer than zero")]
    Zero(&'static str),
    /// A timeout within which nobody can answer.
    #[error("{0} must be at least {min_ms} ms, not {given} ms", min_ms = Policy::TIMEOUT_MIN.as_millis(), given = .1.as_millis())]
    TooShort(&'static str, Duration),
    /// A timeout beyond any use.
    #[error("{0} must be at most 366 days")]
    TooLong(&'static str),
}

impl Policy {
    /// Shortest timeout for what a worker or the queue must do: a shorter one passes while the answer is on its way,
    /// and takes a task from those who work on it.
    pub const TIMEOUT_MIN: Duration = Duration::from_millis(100);

    /// Longest timeout.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 86_400);

    /// Checks the timeouts.
    pub fn check(&self) -> Result<(), PolicyError> {
        let answered = [
            ("enqueue_timeout", self.enqueue_timeout),
            ("claim_timeout", self.claim_timeout),
            ("heartbeat_timeout", self.heartbeat_timeout),
        ];
        for (name, timeout) in answered {
            if timeout < Self::TIMEOUT_MIN {
                return Err(PolicyError::TooShort(name, timeout));
            }
        }
        // Nobody needs to answer within these: the first is for the owner to choose, none of the second has a meaning.
        let run = self.run_timeout.map(|timeout| ("run_timeout", timeout));
        if let Some((name, Duration::ZERO)) = run {
            return Err(PolicyError::Zero(name));
        }
        let increment = ("heartbeat_increment", self.heartbeat_increment);
        for (name, timeout) in answered.into_iter().chain(run).chain([increment]) {
            if timeout > Self::TIMEOUT_MAX {
                return Err(PolicyError::TooLong(name));
            }
        }
        Ok(())
    }

    /// This policy with what a task asked for in its place.
    #[must_use]
    pub fn with(&self, overrides: &Overrides) -> Self {
        let mut policy = self.clone();
        if let Some(retries_max) = overrides.retries_max {
            policy.retry.retries_max = Some(retries_max);
        }
        if let Some(backoff) = overrides.backoff {
            policy.retry.standard = backoff;
        }
        if let Some(timeout) = overrides.heartbeat_timeout {
            policy.heartbeat_timeout = timeout;
            policy.heartbeat_increment = timeout;
        }
        if let Some(increment) = overrides.heartbeat_increment {
            policy.heartbeat_increment = increment;
        }
        if overrides.run_timeout.is_some() {
            policy.run_timeout = overrides.run_timeout;
        }
        policy
    }
}

impl Default for Policy {
    fn default() -> Self {
        let heartbeat_timeout = Duration::from_secs(8);
        Self {
            retry: RetryPolicy::default(),
            enqueue_timeout: Duration::from_secs(60),
            claim_timeout: Duration::from_secs(10),
            heartbeat_timeout,
            heartbeat_increment: heartbeat_timeout,
            run_timeout: None,
            losses_max: 10,
            retention: None,
        }
    }
}

/// How fast the consumer may hand on a job's tasks. Nothing is refused or lost: what exceeds the quota waits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// Tasks handed on per second; `None` for no limit.
    pub rate_per_s: Option<f64>,
    /// How many may be handed on at once after a pause; one second's worth when absent.
    pub burst: Option<u32>,
}

/// Why a quota is refused: the field and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// No rate.
    #[error("must be a number above 0 and at most {max}; pause the job to stop it", max = Quota::RATE_MAX)]
    Rate,
    /// No burst.
    #[error("must be at least 1")]
    Burst,
}

impl Quota {
    /// Most tasks per second that a quota can name.
    pub const RATE_MAX: f64 = 1_000_000.0;

    /// Checks the numbers.
    pub fn check(&self) -> Result<(), QuotaError> {
        // Written so that NaN fails.
        let is_rate = |rate: f64| rate > 0.0 && rate <= Self::RATE_MAX;
        if !self.rate_per_s.is_none_or(is_rate) {
            return Err(QuotaError::Rate);
        }
        if self.burst == Some(0) {
            return Err(QuotaError::Burst);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_finite_number_of_tasks() {
        let of = |rate_per_s, burst| Quota { rate_per_s, burst }.check();
        for rate in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1_000_001.0] {
            assert_eq!(of(Some(rate), None), Err(QuotaError::Rate), "{rate}");
        }
        assert_eq!(of(Some(1.0), Some(0)), Err(QuotaError::Burst));
        assert_eq!(of(Some(0.001), Some(1)), Ok(()));
        assert_eq!(of(None, None), Ok(()));
    }

    #[test]
    fn f_045_a_timeout_that_nobody_can_keep_is_refused() {
        let ms = Duration::from_millis;
        let with = |name: &str, timeout: Duration| {
            let mut policy = Policy::default();
            match name {
                "enqueue_timeout" => policy.enqueue_timeout = timeout,
                "claim_timeout" => policy.claim_timeout = timeout,
                "heartbeat_timeout" => policy.heartbeat_timeout = timeout,
                _ => policy.run_timeout = Some(timeout),
            }
            policy.check()
        };
        for name in ["enqueue_timeout", "claim_timeout", "heartbeat_timeout"] {
            for short in [Duration::ZERO, ms(1), ms(99)] {
                assert_eq!(with(name, short), Err(PolicyError::TooShort(name, short)));
            }
            assert_eq!(with(name, ms(100)), Ok(()));
            let long = Policy::TIMEOUT_MAX + ms(1);
            assert_eq!(with(name, long), Err(PolicyError::TooLong(name)));
        }
        let error = with("claim_timeout", ms(1)).unwrap_err().to_string();
        assert_eq!(error, "claim_timeout must be at least 100 ms, not 1 ms");
        // A run may be as short as its owner wants it.
        assert_eq!(with("run_timeout", ms(1)), Ok(()));
        let zero = Err(PolicyError::Zero("run_timeout"));
        assert_eq!(with("run_timeout", Duration::ZERO), zero);
        assert_eq!(Policy::default().check(), Ok(()));
    }

    #[test]
    fn a_task_may_ask_for_its_own_retries_and_timeouts() {
        let overrides = Overrides {
            retries_max: Some(0),
            heartbeat_timeout: Some(Duration::from_secs(7)),
            heartbeat_increment: Some(Duration::ZERO),
            ..Overrides::default()
        };
        let policy = Policy::default().with(&overrides);
        assert_eq!(policy.retry.retries_max, Some(0));
        assert_eq!(policy.heartbeat_timeout, Duration::from_secs(7));
        assert_eq!(policy.heartbeat_increment, Duration::ZERO);
    }
}
