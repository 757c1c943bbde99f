//! Settings and dependencies of the controller.

use std::{sync::Arc, time::Duration};

use dueline_api::StatusController;
use dueline_domain::JobName;
use dueline_ports::TaskQueue;
use tokio::sync::Notify;

/// Settings of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which jobs this host may serve.
    pub serve: Serve,
    /// Most messages in the buffer, all jobs together.
    pub buffer_max: usize,
    /// Most messages in one receive.
    pub receive_max: usize,
    /// How often to list the jobs that may be dispatched.
    pub refresh_period: Duration,
}

/// Which jobs a host may serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Serve {
    /// Every job that its workers can run.
    #[default]
    All,
    /// Only these jobs.
    Jobs(Vec<JobName>),
}

impl Default for Config {
    /// All jobs, 2000 buffered messages, 500 in one receive, every second.
    fn default() -> Self {
        Self {
            serve: Serve::All,
            buffer_max: 2_000,
            receive_max: 500,
            refresh_period: Duration::from_secs(1),
        }
    }
}

impl Config {
    /// The same settings with zeros raised to the smallest values that work.
    pub(crate) fn clamped(self) -> Self {
        Self {
            serve: self.serve,
            buffer_max: self.buffer_max.max(1),
            receive_max: self.receive_max.max(1),
            refresh_period: self.refresh_period.max(Duration::from_millis(1)),
        }
    }
}

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Deps {
    /// Where messages come from.
    pub queue: Arc<dyn TaskQueue>,
    /// Where tasks are claimed for workers.
    pub status: Arc<dyn StatusController>,
    /// Signalled when a job was created or deleted. Only a hint: the jobs are also listed every
    /// [`Config::refresh_period`].
    pub jobs_changed: Arc<Notify>,
}
