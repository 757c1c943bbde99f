//! Settings of an executor.

use std::time::Duration;

use dueline_domain::{IdError, WorkerId};

/// Shortest interval of heartbeats and registrations, even if the controller or a lease asks for less.
pub(crate) const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Settings of one executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Display name; only together with the incarnation is it unique.
    pub name: String,
    /// Random number of this start of the process, so that a restart is another worker.
    pub incarnation: u64,
    /// Most weight that runs at once.
    pub concurrency: u32,
    /// The executor polls again only when less weight than this runs; `None` polls whenever there is free weight.
    pub concurrency_min: Option<u32>,
    /// Whether the executor runs in the server's own process.
    pub embedded: bool,
    /// How often runs are heartbeaten and the registration is renewed. The controller may require a shorter interval.
    pub heartbeat_interval: Duration,
    /// Most weight that is claimed ahead of a free slot. How much is claimed depends on how fast handlers are.
    pub prefetch_max: usize,
    /// How long a handler may take after its stop signal before its future is dropped.
    pub kill_grace: Duration,
    /// How long a poll waits for the first task.
    pub poll_wait: Duration,
}

impl Config {
    /// The defaults for a worker called `name`.
    pub fn new(name: impl Into<String>, incarnation: u64) -> Self {
        Self {
            name: name.into(),
            incarnation,
            concurrency: 16,
            concurrency_min: None,
            embedded: false,
            heartbeat_interval: Duration::from_secs(2),
            prefetch_max: 1000,
            kill_grace: Duration::from_secs(5),
            poll_wait: Duration::from_secs(20),
        }
    }

    /// Refuses settings that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.worker()?;
        if self.concurrency == 0 {
            return Err(ConfigError::Concurrency);
        }
        if let Some(min) = self.concurrency_min
            && (min == 0 || min > self.concurrency)
        {
            let max = self.concurrency;
            return Err(ConfigError::ConcurrencyMin { min, max });
        }
        if self.prefetch_max > Self::PREFETCH_MAX {
            return Err(ConfigError::Prefetch);
        }
        let durations = [
            ("heartbeat_interval", self.heartbeat_interval),
            ("poll_wait", self.poll_wait),
        ];
        for (name, duration) in durations {
            if duration.is_zero() || duration > Self::DURATION_MAX {
                return Err(ConfigError::Duration(name));
            }
        }
        if self.kill_grace > Self::DURATION_MAX {
            return Err(ConfigError::Duration("kill_grace"));
        }
        Ok(())
    }

    /// Largest [`Config::prefetch_max`]. Bounded, because after a crash each prefetched task waits for its claim
    /// timeout.
    pub const PREFETCH_MAX: usize = 100_000;

    /// Longest allowed duration.
    pub const DURATION_MAX: Duration = Duration::from_secs(3_600);

    pub(crate) fn worker(&self) -> Result<WorkerId, ConfigError> {
        WorkerId::new(&self.name, self.incarnation).map_err(ConfigError::Name)
    }
}

/// Settings that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The name is not a valid worker name.
    #[error("the worker name is not valid")]
    Name(#[source] IdError),
    /// Zero concurrency: no task could ever run.
    #[error("concurrency must be at least 1")]
    Concurrency,
    /// The minimum is zero or above the concurrency.
    #[error("concurrency_min {min} must be at least 1 and at most concurrency, which is {max}")]
    ConcurrencyMin {
        /// The refused minimum.
        min: u32,
        /// The concurrency.
        max: u32,
    },
    /// The prefetch exceeds [`Config::PREFETCH_MAX`].
    #[error("prefetch_max must be at most {}", Config::PREFETCH_MAX)]
    Prefetch,
    /// The named duration is zero or too long.
    #[error("{0} must be longer than zero and at most an hour")]
    Duration(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_032_concurrency_zero_is_refused_and_the_default_is_sixteen() {
        let config = Config::new("w", 1);
        assert_eq!((config.concurrency, config.check()), (16, Ok(())));
        let none = Config {
            concurrency: 0,
            ..config
        };
        assert_eq!(none.check(), Err(ConfigError::Concurrency));
    }

    #[test]
    fn f_033_a_minimum_above_the_maximum_is_refused() {
        let config = Config {
            concurrency: 10,
            concurrency_min: Some(11),
            ..Config::new("w", 1)
        };
        let refused = ConfigError::ConcurrencyMin { min: 11, max: 10 };
        assert_eq!(config.check(), Err(refused));
    }

    #[test]
    fn invalid_worker_names_and_zero_durations_are_refused() {
        assert!(matches!(
            Config::new("a b", 1).check(),
            Err(ConfigError::Name(_))
        ));
        let config = Config {
            heartbeat_interval: Duration::ZERO,
            ..Config::new("w", 1)
        };
        assert_eq!(
            config.check(),
            Err(ConfigError::Duration("heartbeat_interval"))
        );
    }
}
