//! Decides when overdue tasks are reclaimed from workers and when messages are sent again.

use std::time::Duration;

use dueline_domain::{Policy, StateKind, Timestamp};
use tokio::time::Instant;

use crate::{Config, token_bucket::TokenBucket};

/// Number of missed polls after which the store counts as having been unreadable.
const OUTAGE_AFTER_POLLS: u32 = 3;

/// Tracks since when the store is readable, and limits the rate of recovery.
#[derive(Debug)]
pub(crate) struct Watchdog {
    reclaim_grace: Duration,
    outage_after: Duration,
    /// The end of the last successful scan, by both clocks: one of them stops while a machine is suspended.
    last_scan: Option<(Instant, Timestamp)>,
    readable_since: Instant,
    reclaims: TokenBucket,
    resends: TokenBucket,
}

impl Watchdog {
    pub(crate) fn new(config: &Config) -> Self {
        let now = Instant::now();
        let rate = f64::from(config.recovery_rate_per_s);
        Self {
            reclaim_grace: config.reclaim_grace,
            outage_after: config.poll_period * OUTAGE_AFTER_POLLS,
            last_scan: None,
            readable_since: now,
            reclaims: TokenBucket::full(rate, rate, now),
            resends: TokenBucket::full(rate, rate, now),
        }
    }

    /// Records that the store was read. After an outage, silence of workers counts only from now on: their heartbeats
    /// may have failed for the same reason.
    pub(crate) fn record_read(&mut self, now: Instant, wall: Timestamp) {
        let had_outage = self.last_scan.is_none_or(|(then, then_wall)| {
            now.saturating_duration_since(then)
                .max(wall.since(then_wall))
                > self.outage_after
        });
        if had_outage {
            self.readable_since = now;
        }
    }

    /// Records the end of a successful scan.
    pub(crate) fn record_scan(&mut self, now: Instant, wall: Timestamp) {
        self.last_scan = Some((now, wall));
    }

    /// Whether a task whose lease has expired may be reclaimed now.
    pub(crate) fn may_reclaim(&mut self, kind: StateKind, policy: &Policy, now: Instant) -> bool {
        // A live worker sends a heartbeat within its timeout once the store can be reached.
        let timeout = match kind {
            StateKind::Claimed => policy.claim_timeout,
            _ => policy.heartbeat_timeout,
        };
        let grace = self.reclaim_grace.min(timeout);
        now.saturating_duration_since(self.readable_since) >= grace && self.reclaims.try_take(now)
    }

    /// How many of `wanted` messages may be sent again now.
    pub(crate) fn resends(&mut self, wanted: usize, now: Instant) -> usize {
        (0..wanted)
            .take_while(|_| self.resends.try_take(now))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn watchdog(recovery_rate_per_s: u32) -> Watchdog {
        Watchdog::new(&Config {
            recovery_rate_per_s,
            ..Config::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_the_wall_clock_counts_as_an_outage() {
        let (mut watchdog, start) = (watchdog(9), Instant::now());
        let (policy, wall) = (Policy::default(), Timestamp::clamped(1_000_000));
        watchdog.record_read(start, wall);
        watchdog.record_scan(start, wall);
        let later = start + SECOND * 9;
        assert!(watchdog.may_reclaim(StateKind::Processing, &policy, later));
        watchdog.record_scan(later, wall.after(SECOND * 9));
        watchdog.record_read(later, wall.after(SECOND * 3_600));
        assert!(!watchdog.may_reclaim(StateKind::Processing, &policy, later));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_of_recovery_is_limited() {
        let (mut watchdog, start) = (watchdog(2), Instant::now());
        watchdog.record_read(start, Timestamp::EPOCH);
        let mut count = |at: Instant| {
            (0..9)
                .filter(|_| watchdog.may_reclaim(StateKind::Claimed, &Policy::default(), at))
                .count()
        };
        assert_eq!(count(start + SECOND * 10), 2);
        assert_eq!(count(start + SECOND * 11), 2);
    }
}
