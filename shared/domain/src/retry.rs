//! Retries: whether a failed task runs again, and when.

use std::{fmt, str::FromStr, time::Duration};

/// A random number from 0 (inclusive) to 1 (exclusive), drawn by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter(f64);

impl Jitter {
    /// From 64 random bits.
    pub fn from_random(bits: u64) -> Self {
        // The upper 53 bits are what a double can hold exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        Self((bits >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// Exponential backoff: `initial × multiplier^n`, capped at `max`, plus a random part of up to `jitter` times that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    initial: Duration,
    multiplier: f64,
    jitter: f64,
    max: Duration,
}

/// Why a backoff is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackoffError {
    /// The multiplier is out of range or not a number.
    #[error("multiplier must be a number from 1 to 100")]
    Multiplier,
    /// The random part is not a fraction.
    #[error("jitter must be a number from 0 to 1")]
    Jitter,
    /// The first wait exceeds the longest.
    #[error("initial wait exceeds the maximum wait")]
    InitialOverMax,
}

impl Backoff {
    /// Checks and builds a backoff.
    pub fn new(
        initial: Duration,
        multiplier: f64,
        jitter: f64,
        max: Duration,
    ) -> Result<Self, BackoffError> {
        // NaN is in no range, so it fails both checks.
        if !(1.0..=100.0).contains(&multiplier) {
            return Err(BackoffError::Multiplier);
        }
        if !(0.0..=1.0).contains(&jitter) {
            return Err(BackoffError::Jitter);
        }
        if initial > max {
            return Err(BackoffError::InitialOverMax);
        }
        Ok(Self {
            initial,
            multiplier,
            jitter,
            max,
        })
    }

    /// First wait.
    pub const fn initial(&self) -> Duration {
        self.initial
    }

    /// Growth per failure.
    pub const fn multiplier(&self) -> f64 {
        self.multiplier
    }

    /// Random part, as a fraction of the wait.
    pub const fn jitter(&self) -> f64 {
        self.jitter
    }

    /// Longest wait before the random part.
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The wait after a failure that follows `failures` earlier ones.
    pub fn wait(&self, failures: u32, jitter: Jitter) -> Duration {
        // Zero times an infinite growth would be NaN.
        if self.initial.is_zero() {
            return Duration::ZERO;
        }
        let growth = self
            .multiplier
            .powi(i32::try_from(failures).unwrap_or(i32::MAX));
        let wait = (self.initial.as_secs_f64() * growth).min(self.max.as_secs_f64());
        let wait = wait * (1.0 + self.jitter * jitter.get());
        Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX)
    }
}

/// The class of a failure. It selects the backoff before the next run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetryClass {
    /// No class given: the job's ordinary backoff.
    #[default]
    Standard,
    /// A short fault; retry soon.
    Quick,
    /// A dependency is down; retry late.
    Slow,
    /// A remote service asked for fewer calls.
    RateLimited,
    /// The worker died or lost its connection.
    WorkerLost,
}

impl RetryClass {
    /// All classes.
    pub const ALL: [Self; 5] = [
        Self::Standard,
        Self::Quick,
        Self::Slow,
        Self::RateLimited,
        Self::WorkerLost,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Quick => "quick",
            Self::Slow => "slow",
            Self::RateLimited => "rate_limited",
            Self::WorkerLost => "worker_lost",
        }
    }
}

impl fmt::Display for RetryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RetryClass {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|class| class.name() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|c| c.name()).collect();
                let text = text.escape_debug();
                format!(
                    "unknown retry class '{text}'; known are {}",
                    known.join(", ")
                )
            })
    }
}

/// How many times the tasks of a job are retried, and after which waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Runs after the first; `None` means no limit. Zero means a single run.
    pub retries_max: Option<u32>,
    /// Waits of [`RetryClass::Standard`].
    pub standard: Backoff,
    /// Waits of [`RetryClass::Quick`].
    pub quick: Backoff,
    /// Waits of [`RetryClass::Slow`].
    pub slow: Backoff,
    /// Waits of [`RetryClass::RateLimited`].
    pub rate_limited: Backoff,
    /// Waits of [`RetryClass::WorkerLost`]; `None` enqueues the task at once.
    pub worker_lost: Option<Backoff>,
}

impl RetryPolicy {
    /// Whether a task that has used `tries` tries may run again.
    pub fn allows_after(&self, tries: u32) -> bool {
        self.retries_max.is_none_or(|max| tries <= max)
    }

    /// The wait before the next run; `None` enqueues the task at once.
    pub fn wait(&self, class: RetryClass, failures: u32, jitter: Jitter) -> Option<Duration> {
        let backoff = match class {
            RetryClass::Standard => self.standard,
            RetryClass::Quick => self.quick,
            RetryClass::Slow => self.slow,
            RetryClass::RateLimited => self.rate_limited,
            RetryClass::WorkerLost => self.worker_lost?,
        };
        Some(backoff.wait(failures, jitter))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let backoff = |initial_ms, max_s| Backoff {
            initial: Duration::from_millis(initial_ms),
            multiplier: 2.0,
            jitter: 0.2,
            max: Duration::from_secs(max_s),
        };
        Self {
            retries_max: Some(3),
            standard: backoff(5_000, 3_600),
            quick: backoff(500, 60),
            slow: backoff(60_000, 3_600),
            rate_limited: backoff(1_000, 300),
            worker_lost: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn backoff(initial_s: u64, multiplier: f64, jitter: f64, max_s: u64) -> Backoff {
        let initial = Duration::from_secs(initial_s);
        Backoff::new(initial, multiplier, jitter, Duration::from_secs(max_s)).unwrap()
    }

    #[test]
    fn f_056_waits_grow_by_the_multiplier_and_the_random_part_only_adds() {
        let backoff = backoff(2, 2.0, 0.2, 3_600);
        for (failures, low) in [(0, 2.0), (1, 4.0), (2, 8.0)] {
            let least = backoff.wait(failures, Jitter::from_random(0));
            let most = backoff.wait(failures, Jitter::from_random(u64::MAX));
            assert!((least.as_secs_f64() - low).abs() < 1e-6);
            assert!(most.as_secs_f64() <= low * 1.2 && most > least);
        }
    }

    #[test]
    fn f_056_a_backoff_with_bad_numbers_is_refused() {
        let second = Duration::from_secs(1);
        for multiplier in [0.99, -1.0, f64::NAN, f64::INFINITY] {
            let refused = Backoff::new(second, multiplier, 0.0, second);
            assert_eq!(refused, Err(BackoffError::Multiplier));
        }
        for jitter in [-0.1, 1.1, f64::NAN] {
            assert_eq!(
                Backoff::new(second, 2.0, jitter, second),
                Err(BackoffError::Jitter)
            );
        }
    }

    #[test]
    fn f_058_multiplier_one_waits_the_same_each_time() {
        let backoff = backoff(3, 1.0, 0.0, 60);
        let waits: Vec<_> = (0..5).map(|n| backoff.wait(n, Jitter::default())).collect();
        assert!(waits.iter().all(|wait| *wait == Duration::from_secs(3)));
    }

    #[test]
    fn f_057_each_class_has_its_own_waits_and_an_unknown_class_is_refused() {
        let policy = RetryPolicy::default();
        let wait = |class| policy.wait(class, 0, Jitter::default());
        assert_eq!(wait(RetryClass::Quick), Some(Duration::from_millis(500)));
        assert_eq!(wait(RetryClass::Slow), Some(Duration::from_secs(60)));
        assert_eq!(wait(RetryClass::WorkerLost), None);
        assert!("fast".parse::<RetryClass>().is_err());
    }

    proptest! {
        #[test]
        fn the_wait_never_overflows_and_stays_within_its_bounds(
            failures in any::<u32>(), bits in any::<u64>(), multiplier in 1.0_f64..100.0
        ) {
            let backoff = backoff(1, multiplier, 1.0, 3_600);
            let wait = backoff.wait(failures, Jitter::from_random(bits));
            prop_assert!(wait >= Duration::from_secs(1));
            prop_assert!(wait <= Duration::from_secs(7_200));
        }
    }
}
