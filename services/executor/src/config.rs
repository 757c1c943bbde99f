//! How an executor behaves.

use std::time::Duration;

use dueline_domain::{IdError, WorkerId};

/// Settings of one executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name for people; the incarnation makes it unique.
    pub name: String,
    /// Random number of this start of the process, so that a restart is another worker.
    pub incarnation: u64,
    /// Most weight that runs at once.
    pub concurrency: u32,
    /// Ask for work again only when less weight than this runs; `None` asks whenever there is room.
    pub concurrency_min: Option<u32>,
    /// Whether it lives in the server's own process.
    pub embedded: bool,
    /// How often running tasks are heartbeaten and the worker says that it is there. The controller may ask for more.
    pub heartbeat_interval: Duration,
    /// Most weight that is claimed ahead of a free slot. How much really is follows from how fast handlers are.
    pub prefetch_max: usize,
    /// How long a handler that was told to stop may take before its future is dropped.
    pub kill_grace: Duration,
    /// How long one call for work waits for the first task.
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
        let named = [
            ("heartbeat_interval", self.heartbeat_interval),
            ("poll_wait", self.poll_wait),
        ];
        for (name, duration) in named {
            if duration.is_zero() || duration > Self::DURATION_MAX {
                return Err(ConfigError::Duration(name));
            }
        }
        if self.kill_grace > Self::DURATION_MAX {
            return Err(ConfigError::Duration("kill_grace"));
        }
        Ok(())
    }

    /// Largest [`Config::prefetch_max`]: whatever a crash leaves claimed has to wait for its claim timeout.
    pub const PREFETCH_MAX: usize = 100_000;

    /// Longest of the durations.
    pub const DURATION_MAX: Duration = Duration::from_secs(3_600);

    pub(crate) fn worker(&self) -> Result<WorkerId, ConfigError> {
        WorkerId::new(&self.name, self.incarnation).map_err(ConfigError::Name)
    }
}

/// Settings that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The name is no worker name.
    #[error("name is not usable")]
    Name(#[source] IdError),
    /// Nothing could ever run.
    #[error("concurrency must be at least 1")]
    Concurrency,
    /// The refill mark lies outside what can run.
    #[error("concurrency_min {min} must be at least 1 and at most concurrency, which is {max}")]
    ConcurrencyMin {
        /// As given.
        min: u32,
        /// The concurrency.
        max: u32,
    },
    /// Too much would be claimed ahead.
    #[error("prefetch_max must be at most {}", Config::PREFETCH_MAX)]
    Prefetch,
    /// A duration without use.
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
    fn names_that_are_no_worker_names_and_empty_durations_are_refused() {
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
