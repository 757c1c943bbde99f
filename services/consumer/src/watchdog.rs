//! What to do about tasks that somebody else should have moved by now.

use std::time::Duration;

use dueline_domain::{Policy, StateKind, Timestamp};
use tokio::time::Instant;

use crate::{Config, quota::Bucket};

/// After this many missed polls the watchdog counts as having been blind.
const BLIND_AFTER_POLLS: u32 = 3;

/// Knows since when it sees, and how fast it may act.
#[derive(Debug)]
pub(crate) struct Watchdog {
    sight_grace: Duration,
    blind_after: Duration,
    /// End of the last successful look, by both clocks: a suspended machine stops one of them.
    looked: Option<(Instant, Timestamp)>,
    sighted_since: Instant,
    take_backs: Bucket,
    renewals: Bucket,
}

impl Watchdog {
    pub(crate) fn new(config: &Config) -> Self {
        let now = Instant::now();
        let rate = f64::from(config.recovery_rate_per_s);
        Self {
            sight_grace: config.sight_grace,
            blind_after: config.poll_period * BLIND_AFTER_POLLS,
            looked: None,
            sighted_since: now,
            take_backs: Bucket::full(rate, rate, now),
            renewals: Bucket::full(rate, rate, now),
        }
    }

    /// The store could be read. If that had not been so for a while, nobody's silence counts from before now: their
    /// heartbeats may have met the same wall.
    pub(crate) fn sees(&mut self, now: Instant, wall: Timestamp) {
        let was_blind = self.looked.is_none_or(|(then, then_wall)| {
            now.saturating_duration_since(then)
                .max(wall.since(then_wall))
                > self.blind_after
        });
        if was_blind {
            self.sighted_since = now;
        }
    }

    /// A look ended well.
    pub(crate) fn looked(&mut self, now: Instant, wall: Timestamp) {
        self.looked = Some((now, wall));
    }

    /// Whether a task whose lease has lapsed may be taken back now.
    pub(crate) fn may_take_back(&mut self, kind: StateKind, policy: &Policy, now: Instant) -> bool {
        // A live worker is heard of within its timeout once it can be heard at all.
        let timeout = match kind {
            StateKind::Claimed => policy.claim_timeout,
            _ => policy.heartbeat_timeout,
        };
        let grace = self.sight_grace.min(timeout);
        now.saturating_duration_since(self.sighted_since) >= grace && self.take_backs.try_take(now)
    }

    /// How many of `wanted` messages may be sent again now.
    pub(crate) fn renewals(&mut self, wanted: usize, now: Instant) -> usize {
        (0..wanted)
            .take_while(|_| self.renewals.try_take(now))
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
    async fn a_jump_of_the_wall_clock_counts_as_blindness() {
        let (mut watchdog, start) = (watchdog(9), Instant::now());
        let (policy, wall) = (Policy::default(), Timestamp::clamped(1_000_000));
        watchdog.sees(start, wall);
        watchdog.looked(start, wall);
        let later = start + SECOND * 9;
        assert!(watchdog.may_take_back(StateKind::Processing, &policy, later));
        watchdog.looked(later, wall.after(SECOND * 9));
        watchdog.sees(later, wall.after(SECOND * 3_600));
        assert!(!watchdog.may_take_back(StateKind::Processing, &policy, later));
    }

    #[tokio::test(start_paused = true)]
    async fn recovery_is_paced() {
        let (mut watchdog, start) = (watchdog(2), Instant::now());
        watchdog.sees(start, Timestamp::EPOCH);
        let mut count = |at: Instant| {
            (0..9)
                .filter(|_| watchdog.may_take_back(StateKind::Claimed, &Policy::default(), at))
                .count()
        };
        assert_eq!(count(start + SECOND * 10), 2);
        assert_eq!(count(start + SECOND * 11), 2);
    }
}
