//! Clocks that a test sets.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use dueline_domain::Timestamp;
use tokio::time::Instant;

use crate::Clock;

/// A clock that stands still until it is set or advanced.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock set to `now`.
    pub const fn new(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.millis()))
    }

    /// Sets the clock to `now`, in either direction.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.millis(), Ordering::SeqCst);
    }

    /// Advances the clock; returns the new time.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        let before = self.0.fetch_add(millis, Ordering::SeqCst);
        Timestamp::clamped(before.saturating_add(millis))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::clamped(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that follows tokio's clock: in a paused runtime it advances with the timers.
#[derive(Debug)]
pub struct TokioClock {
    base: Timestamp,
    started: Instant,
    skew_ms: AtomicI64,
}

impl TokioClock {
    /// A clock that starts at `base`. Call this inside the runtime whose time the clock follows.
    pub fn new(base: Timestamp) -> Self {
        Self::skewed(base, 0)
    }

    /// As [`TokioClock::new`], but off by `skew_ms`; a positive skew is ahead.
    pub fn skewed(base: Timestamp, skew_ms: i64) -> Self {
        let skew_ms = AtomicI64::new(skew_ms);
        let started = Instant::now();
        Self {
            base,
            started,
            skew_ms,
        }
    }

    /// Makes the clock jump: from now on it is off by `skew_ms`.
    pub fn set_skew(&self, skew_ms: i64) {
        self.skew_ms.store(skew_ms, Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let exact = self.base.after(self.started.elapsed());
        let skew_ms = self.skew_ms.load(Ordering::SeqCst);
        Timestamp::clamped(exact.millis().saturating_add(skew_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_moves_with_timers_and_keeps_its_skew() {
        let base = Timestamp::clamped(1_000_000);
        let (exact, ahead) = (TokioClock::new(base), TokioClock::skewed(base, 250));
        tokio::time::advance(Duration::from_millis(1_500)).await;
        assert_eq!(exact.now().millis(), 1_001_500);
        assert_eq!(ahead.now().millis(), 1_001_750);
        ahead.set_skew(-500);
        assert_eq!(ahead.now().millis(), 1_001_000);
    }

    #[test]
    fn the_manual_clock_can_be_advanced_and_set() {
        let clock = ManualClock::new(Timestamp::clamped(5));
        assert_eq!(clock.advance(Duration::from_millis(7)).millis(), 12);
        clock.set(Timestamp::clamped(3));
        assert_eq!(clock.now().millis(), 3);
    }
}
