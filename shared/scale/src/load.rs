//! The load that a fleet has to take.

use serde::{Deserialize, Serialize};

/// A load, averaged over a month; [`Load::peak`] is the ratio of its busiest second to the average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "args", derive(clap::Args))]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Tasks a second, on average
    #[cfg_attr(feature = "args", arg(long, value_name = "N", default_value_t = 10.0))]
    pub tasks_per_s: f64,

    /// Load of the busiest second as a multiple of the average; bills follow the average, limits the peak
    #[cfg_attr(
        feature = "args",
        arg(long, value_name = "TIMES", default_value_t = 1.0)
    )]
    pub peak: f64,

    /// Jobs that have tasks
    #[cfg_attr(feature = "args", arg(long, value_name = "N", default_value_t = 10))]
    pub jobs: u32,

    /// Jobs without tasks, which cost only scans and polls
    #[cfg_attr(feature = "args", arg(long, value_name = "N", default_value_t = 0))]
    pub idle_jobs: u32,

    /// Share of the busiest job in all tasks, 0 to 1 [default: all jobs alike]
    #[cfg_attr(feature = "args", arg(long, value_name = "SHARE"))]
    pub busiest_job: Option<f64>,

    /// Size of a task's payload
    #[cfg_attr(
        feature = "args",
        arg(long, value_name = "BYTES", default_value_t = 200)
    )]
    pub payload_bytes: u32,

    /// How long a run takes
    #[cfg_attr(
        feature = "args",
        arg(long, value_name = "SECONDS", default_value_t = 1.0)
    )]
    pub run_s: f64,

    /// Share of tasks with a date in the future, 0 to 1; the others run at once
    #[cfg_attr(
        feature = "args",
        arg(long, value_name = "SHARE", default_value_t = 0.0)
    )]
    pub scheduled: f64,

    /// Share of tasks with an idempotency key, 0 to 1
    #[cfg_attr(
        feature = "args",
        arg(long, value_name = "SHARE", default_value_t = 0.0)
    )]
    pub keyed: f64,

    /// Failed runs per task that are retried
    #[cfg_attr(feature = "args", arg(long, value_name = "N", default_value_t = 0.0))]
    pub retries: f64,

    /// Heartbeat timeout of the jobs
    #[cfg_attr(
        feature = "args",
        arg(long, value_name = "SECONDS", default_value_t = 8.0)
    )]
    pub heartbeat_timeout_s: f64,

    /// Due shards of each job [default: as many as the load needs]
    #[cfg_attr(feature = "args", arg(long, value_name = "N"))]
    pub shards: Option<u32>,

    /// Slots of the table: keys that the tasks of one job are spread over
    #[cfg_attr(feature = "args", arg(long, value_name = "N", default_value_t = 16))]
    pub slots: u32,

    /// Longest time between two scans for due tasks
    #[cfg_attr(
        feature = "args",
        arg(long = "poll-period", value_name = "SECONDS", default_value_t = 1.0)
    )]
    pub poll_period_s: f64,

    /// Controllers that poll the queue of one job
    #[cfg_attr(feature = "args", arg(long, value_name = "N", default_value_t = 2))]
    pub pollers: u32,

    /// How long finished tasks are kept
    #[cfg_attr(
        feature = "args",
        arg(long, value_name = "DAYS", default_value_t = 7.0)
    )]
    pub retention_days: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            tasks_per_s: 10.0,
            peak: 1.0,
            jobs: 10,
            idle_jobs: 0,
            busiest_job: None,
            payload_bytes: 200,
            run_s: 1.0,
            scheduled: 0.0,
            keyed: 0.0,
            retries: 0.0,
            heartbeat_timeout_s: 8.0,
            shards: None,
            slots: 16,
            poll_period_s: 1.0,
            pollers: 2,
            retention_days: 7.0,
        }
    }
}

/// A field of a load is out of range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvalidLoad {
    /// The field.
    pub field: &'static str,
    /// The range it must be in.
    pub must: &'static str,
}

impl std::fmt::Display for InvalidLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} must be {}", self.field, self.must)
    }
}

impl std::error::Error for InvalidLoad {}

impl Load {
    /// Checks that each field is in its range; the error names the first one that is not. The model's functions do not
    /// check.
    pub fn check(&self) -> Result<(), InvalidLoad> {
        let not_negative = [
            ("tasks_per_s", self.tasks_per_s),
            ("run_s", self.run_s),
            ("retries", self.retries),
            ("retention_days", self.retention_days),
        ];
        let positive = [
            ("heartbeat_timeout_s", self.heartbeat_timeout_s),
            ("poll_period_s", self.poll_period_s),
        ];
        let shares = [
            ("scheduled", self.scheduled),
            ("keyed", self.keyed),
            ("busiest_job", self.busiest_job()),
        ];
        let counts = [
            ("jobs", self.jobs),
            ("slots", self.slots),
            ("pollers", self.pollers),
            ("shards", self.shards.unwrap_or(1)),
        ];
        let wrong = |field, must| Err(InvalidLoad { field, must });
        for (field, value) in counts {
            if value == 0 {
                return wrong(field, "at least 1");
            }
        }
        for (field, value) in not_negative {
            if !value.is_finite() || value < 0.0 {
                return wrong(field, "0 or more");
            }
        }
        for (field, value) in positive {
            if !value.is_finite() || value <= 0.0 {
                return wrong(field, "more than 0");
            }
        }
        for (field, value) in shares {
            if !(0.0..=1.0).contains(&value) {
                return wrong(field, "between 0 and 1");
            }
        }
        if !self.peak.is_finite() || self.peak < 1.0 {
            return wrong("peak", "at least 1");
        }
        Ok(())
    }

    /// Tasks in the busiest second.
    pub fn peak_tasks_per_s(&self) -> f64 {
        self.tasks_per_s * self.peak
    }

    /// The share of the busiest job.
    pub fn busiest_job(&self) -> f64 {
        self.busiest_job.unwrap_or(1.0 / f64::from(self.jobs))
    }

    /// This load at another rate.
    pub fn at(&self, tasks_per_s: f64) -> Self {
        Self {
            tasks_per_s,
            ..self.clone()
        }
    }
}
