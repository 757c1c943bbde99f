//! What happens to firings that were missed while no consumer ran.

use std::time::Duration;

/// What happens to missed firings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// They are skipped.
    None,
    /// The latest of all due firings is made up for; earlier ones are skipped.
    #[default]
    Latest,
    /// The latest `max` are made up for, in their order; earlier ones are skipped.
    All {
        /// How many at most.
        max: u32,
    },
}

/// The catch-up policy of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUpPolicy {
    catch_up: CatchUp,
    grace: Duration,
}

/// Why a catch-up policy is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatchUpError {
    /// The cap of `All` is zero or too large.
    #[error("catch-up of all needs a cap from 1 to {max}", max = CatchUpPolicy::CAP_MAX)]
    Cap,
    /// The grace is too long.
    #[error("must be at most {max} s", max = CatchUpPolicy::GRACE_MAX.as_secs())]
    Grace,
}

impl CatchUpPolicy {
    /// The greatest cap of [`CatchUp::All`].
    pub const CAP_MAX: u32 = 1_000;
    /// The longest grace.
    pub const GRACE_MAX: Duration = Duration::from_secs(3_600);

    /// A firing counts as missed once it is `grace` late. Before, it is carried out whatever the policy.
    pub fn new(catch_up: CatchUp, grace: Duration) -> Result<Self, CatchUpError> {
        if matches!(catch_up, CatchUp::All { max } if max == 0 || max > Self::CAP_MAX) {
            return Err(CatchUpError::Cap);
        }
        if grace > Self::GRACE_MAX {
            return Err(CatchUpError::Grace);
        }
        Ok(Self { catch_up, grace })
    }

    /// What happens to missed firings.
    pub const fn catch_up(&self) -> CatchUp {
        self.catch_up
    }

    /// How late a firing counts as missed.
    pub const fn grace(&self) -> Duration {
        self.grace
    }
}

impl Default for CatchUpPolicy {
    /// The latest, with a grace of a minute.
    fn default() -> Self {
        Self {
            catch_up: CatchUp::default(),
            grace: Duration::from_secs(60),
        }
    }
}
