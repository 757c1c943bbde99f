//! Jobs: the named definitions that tasks belong to.

use std::{sync::Arc, time::Duration};

use crate::{JobName, NewTask, Overrides, RetryPolicy, Sink, StateKind, Task, Timestamp};

/// A named definition: the handler of its tasks, their retries, timeouts and quota.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The name; also names the queue.
    pub name: JobName,
    /// A description for people.
    pub info: Arc<str>,
    /// What runs its tasks.
    pub handler: Handler,
    /// Retries and timeouts.
    pub policy: Policy,
    /// How fast tasks may be enqueued.
    pub quota: Quota,
    /// How the tasks of different fairness keys share the workers; `None` if the order of the tasks alone decides.
    pub fair_share: Option<FairShare>,
    /// Whether due tasks wait instead of being enqueued.
    pub paused: bool,
    /// The client that created the job, as the client named itself.
    pub created_by: Arc<str>,
    /// When the job was created.
    pub created_at: Timestamp,
    /// When the job was last changed.
    pub changed_at: Timestamp,
}

impl Job {
    /// A job whose tasks any worker runs that polls for it, with defaults for all other fields.
    pub fn new(name: JobName) -> Self {
        Self {
            name,
            info: Arc::default(),
            handler: Handler::worker(),
            policy: Policy::default(),
            quota: Quota::default(),
            fair_share: None,
            paused: false,
            created_by: Arc::default(),
            created_at: Timestamp::EPOCH,
            changed_at: Timestamp::EPOCH,
        }
    }

    /// Takes from the definition that this one replaces what a new definition does not change. A job keeps its fair share,
    /// because its tasks may wait in lanes.
    pub fn keep(&mut self, existing: &Self) {
        self.created_at = existing.created_at;
        self.created_by = existing.created_by.clone();
        self.fair_share = self.fair_share.or(existing.fair_share);
    }

    /// Whether the write that creates a due task also enqueues the task. In a paused job or one with a quota, only the
    /// consumer enqueues tasks.
    pub const fn enqueues_at_once(&self) -> bool {
        !self.paused && self.quota.rate_per_s.is_none() && !self.takes_places()
    }

    /// Whether each task of this job needs a place before it is enqueued, because the number of those that are enqueued or
    /// owned is limited.
    pub const fn takes_places(&self) -> bool {
        self.quota.running_max.is_some() || self.fair_share.is_some()
    }

    /// Marks a submit to a job whose fairness keys take turns. Called by a store before it makes the task.
    pub fn admit(&self, task: &mut NewTask) {
        if self.fair_share.is_some() {
            task.options.get_or_insert_default().takes_turns = true;
        } else if let Some(options) = &mut task.options {
            options.takes_turns = false;
        }
    }

    /// Marks a task that was stored before its job had a fair share. Called by a store with each write of the task; returns whether
    /// the task has changed.
    pub fn admit_stored(&self, task: &mut Task) -> bool {
        let takes_turns = |task: &Task| task.options.as_ref().is_some_and(|o| o.takes_turns);
        if self.fair_share.is_none() || takes_turns(task) {
            return false;
        }
        task.options.get_or_insert_default().takes_turns = true;
        true
    }

    /// The lane in which a task waits, if the job has lanes: its fairness key, or the empty text without one. A task is in
    /// its lane while it waits for its time or its turn, and in none while it waits for other tasks, is enqueued or owned.
    pub fn lane_of<'a>(&self, task: &'a Task) -> Option<&'a str> {
        let is_in_lane = matches!(task.kind(), StateKind::New | StateKind::Retriable);
        (self.fair_share.is_some() && is_in_lane).then(|| task.lane_name())
    }
}

/// What runs the tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// `worker` (code that a worker registered for the job), or a built-in handler: `exec`, `http`, `noop`.
    pub kind: Arc<str>,
    /// Settings of a built-in handler as a JSON object. The handler parses them.
    pub config: Arc<str>,
}

impl Handler {
    /// The tasks run on any worker that subscribes to the job.
    pub fn worker() -> Self {
        let (kind, config) = (Arc::from("worker"), Arc::from("{}"));
        Self { kind, config }
    }
}

/// How long the tasks of a job may stay in each state, and how they are retried.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Retries and backoff.
    pub retry: RetryPolicy,
    /// An enqueued task that is not claimed within this time is enqueued again.
    pub enqueue_timeout: Duration,
    /// A claimed task that is not started within this time is enqueued again.
    pub claim_timeout: Duration,
    /// A run is lost when no heartbeat arrives for this long.
    pub heartbeat_timeout: Duration,
    /// A heartbeat moves the end of the lease to the later of its present end and now plus this. Zero makes
    /// `heartbeat_timeout` a hard limit.
    pub heartbeat_increment: Duration,
    /// Longest run, even with heartbeats: the worker stops the run when this time is over.
    pub run_timeout: Option<Duration>,
    /// How many claims of a task may be lost before a run began. A further loss makes the task poison: it is trashed.
    pub losses_max: u32,
    /// How long a finished task is kept; `None` keeps it for good.
    pub retention: Option<Duration>,
    /// Where finished tasks are delivered before they may be deleted.
    pub sink: Option<Sink>,
}

/// Why a policy is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A timeout of zero.
    #[error("{0} must be longer than zero")]
    Zero(&'static str),
    /// A timeout that passes while an answer is in transit.
    #[error("{0} must be at least {min_ms} ms, not {given} ms", min_ms = Policy::TIMEOUT_MIN.as_millis(), given = .1.as_millis())]
    TooShort(&'static str, Duration),
    /// A timeout above [`Policy::TIMEOUT_MAX`].
    #[error("{0} must be at most 366 days")]
    TooLong(&'static str),
}

impl Policy {
    /// Shortest timeout for an answer of a worker or a message of the queue. A shorter one passes while the answer is
    /// in transit, and ends the lease of a worker that is alive.
    pub const TIMEOUT_MIN: Duration = Duration::from_millis(100);

    /// How long the store waits for the outcome of a run after its run timeout has ended, before it counts the run as
    /// lost. The worker stops the run at the end of its run timeout, so a run may use all of it. Within half the grace
    /// the worker drops a handler that does not stop; the other half is for the report.
    pub const RUN_GRACE: Duration = Duration::from_secs(1);

    /// Longest timeout.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 86_400);

    /// Checks the timeouts.
    pub fn check(&self) -> Result<(), PolicyError> {
        let with_minimum = [
            ("enqueue_timeout", self.enqueue_timeout),
            ("claim_timeout", self.claim_timeout),
            ("heartbeat_timeout", self.heartbeat_timeout),
        ];
        for (name, timeout) in with_minimum {
            if timeout < Self::TIMEOUT_MIN {
                return Err(PolicyError::TooShort(name, timeout));
            }
        }
        // No answer is due within the next two, so they have no such minimum. A heartbeat increment of zero is legal.
        let run = self.run_timeout.map(|timeout| ("run_timeout", timeout));
        if let Some((name, Duration::ZERO)) = run {
            return Err(PolicyError::Zero(name));
        }
        let increment = ("heartbeat_increment", self.heartbeat_increment);
        for (name, timeout) in with_minimum.into_iter().chain(run).chain([increment]) {
            if timeout > Self::TIMEOUT_MAX {
                return Err(PolicyError::TooLong(name));
            }
        }
        Ok(())
    }

    /// This policy with the overrides of a task.
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
            sink: None,
        }
    }
}

/// How fast the consumer may enqueue the tasks of a job, and how many run at once. Tasks above the quota are not refused;
/// they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// Tasks enqueued per second; `None` for no limit.
    pub rate_per_s: Option<f64>,
    /// How many tasks may be enqueued at once after a pause. `None` means as many as in one second.
    pub burst: Option<u32>,
    /// How many tasks may be enqueued or owned by workers at the same time, in the whole fleet; `None` for no limit.
    pub running_max: Option<u32>,
}

/// How tasks of different fairness keys share the workers of a job: they take turns, so that a key with many tasks does not
/// delay those of a key with few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FairShare {
    /// How many tasks of one fairness key may be enqueued or owned by workers at the same time, in the whole fleet; `None`
    /// for no limit.
    pub running_max: Option<u32>,
}

impl FairShare {
    /// Checks the number.
    pub const fn check(&self) -> Result<(), QuotaError> {
        match self.running_max {
            Some(max) if max == 0 || max > Quota::RUNNING_MAX => Err(QuotaError::Running),
            _ => Ok(()),
        }
    }
}

/// Why a quota is refused: the field, and the values that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The rate is out of range.
    #[error("must be a number above 0 and at most {max}; pause the job to stop it", max = Quota::RATE_MAX)]
    Rate,
    /// The burst is zero.
    #[error("must be at least 1")]
    Burst,
    /// The number of running tasks is out of range.
    #[error("must be from 1 to {max}; pause the job to stop it", max = Quota::RUNNING_MAX)]
    Running,
}

impl Quota {
    /// Highest rate of a quota, in tasks per second.
    pub const RATE_MAX: f64 = 1_000_000.0;

    /// Highest number of running tasks that a quota can set. A store that several processes write keeps the ids of these
    /// tasks in one item.
    pub const RUNNING_MAX: u32 = 1_000;

    /// Checks the numbers.
    pub fn check(&self) -> Result<(), QuotaError> {
        // Both comparisons are false for NaN.
        let is_rate = |rate: f64| rate > 0.0 && rate <= Self::RATE_MAX;
        if !self.rate_per_s.is_none_or(is_rate) {
            return Err(QuotaError::Rate);
        }
        if self.burst == Some(0) {
            return Err(QuotaError::Burst);
        }
        if self
            .running_max
            .is_some_and(|max| max == 0 || max > Self::RUNNING_MAX)
        {
            return Err(QuotaError::Running);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_finite_number_of_tasks() {
        let check = |rate_per_s, burst| {
            let quota = Quota {
                rate_per_s,
                burst,
                running_max: None,
            };
            quota.check()
        };
        for rate in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1_000_001.0] {
            assert_eq!(check(Some(rate), None), Err(QuotaError::Rate), "{rate}");
        }
        assert_eq!(check(Some(1.0), Some(0)), Err(QuotaError::Burst));
        assert_eq!(check(Some(0.001), Some(1)), Ok(()));
        assert_eq!(check(None, None), Ok(()));
        for (running_max, is_legal) in [(0, false), (1, true), (1_000, true), (1_001, false)] {
            let quota = Quota {
                running_max: Some(running_max),
                ..Quota::default()
            };
            assert_eq!(quota.check().is_ok(), is_legal, "{running_max}");
        }
    }

    #[test]
    fn f_045_a_timeout_too_short_to_answer_within_is_refused() {
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
        // A run timeout has no minimum but zero.
        assert_eq!(with("run_timeout", ms(1)), Ok(()));
        let zero = Err(PolicyError::Zero("run_timeout"));
        assert_eq!(with("run_timeout", Duration::ZERO), zero);
        assert_eq!(Policy::default().check(), Ok(()));
    }

    #[test]
    fn a_task_may_override_retries_and_timeouts() {
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
