//! How long this executor may believe that a task is its own, on the monotonic clock.

use std::time::Duration;

use dueline_api::Assignment;
use tokio::time::Instant;

use crate::{StopReason, beat::INTERVAL_MIN};

/// A run ends when this many heartbeats in a row were not answered.
const MISSES_MAX: u32 = 3;

/// What is known here of a lease. Each time is reckoned from a moment *before* the store can have set its own, so
/// the end known here is never later than the real one.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    heartbeat_timeout: Duration,
    heartbeat_increment: Duration,
    claim_timeout: Duration,
    kill_grace: Duration,
    /// When the lease lapses unless it is renewed.
    ends_at: Instant,
    /// When the run must be over whatever the heartbeats say, and how long before that it is told.
    hard: Option<(Instant, Duration)>,
    /// Whether the start is durable, so that heartbeats count.
    is_started: bool,
    misses: u32,
}

impl Lease {
    /// The lease of a claim that was received at `received`.
    pub(crate) fn claimed(task: &Assignment, received: Instant, kill_grace: Duration) -> Self {
        Self {
            heartbeat_timeout: task.heartbeat_timeout,
            heartbeat_increment: task.heartbeat_increment,
            claim_timeout: task.claim_timeout,
            kill_grace,
            ends_at: received + task.claim_timeout,
            hard: None,
            is_started: false,
            misses: 0,
        }
    }

    /// The handler begins.
    pub(crate) fn begin(&mut self, now: Instant, run_timeout: Option<Duration>) {
        let margin = |limit| self.hard_margin(limit);
        self.hard = run_timeout.map(|limit| (now + limit, margin(limit)));
    }

    /// A start goes out, and from the moment it is stored the heartbeat timeout counts.
    pub(crate) fn start_sent(&mut self, sent: Instant) {
        self.ends_at = self.ends_at.min(sent + self.heartbeat_timeout);
    }

    /// The start that went out at `sent` is durable.
    pub(crate) fn start_kept(&mut self, sent: Instant, left: Option<Duration>) {
        self.is_started = true;
        self.misses = 0;
        self.ends_at = sent + left.unwrap_or(self.heartbeat_timeout);
    }

    /// A sign of life that went out at `sent` is durable. The end never moves back, see [`Lease`].
    pub(crate) fn renewed(&mut self, sent: Instant, left: Option<Duration>) {
        self.misses = 0;
        if self.heartbeat_increment.is_zero() {
            return;
        }
        let end = sent + left.unwrap_or(self.heartbeat_increment);
        self.ends_at = self.ends_at.max(end);
    }

    /// A heartbeat was not answered; whether that was one too many.
    pub(crate) fn missed(&mut self) -> bool {
        self.misses += 1;
        self.misses >= MISSES_MAX
    }

    /// Whether heartbeats count.
    pub(crate) const fn is_started(&self) -> bool {
        self.is_started
    }

    /// How often to heartbeat at least: the third one missed in a row must end the run before the lease ends.
    pub(crate) fn beat_interval(&self) -> Duration {
        (self.renewable() / 4).max(INTERVAL_MIN)
    }

    /// What one sign of life is good for in the long run.
    fn renewable(&self) -> Duration {
        if self.heartbeat_increment.is_zero() {
            self.heartbeat_timeout
        } else {
            self.heartbeat_timeout.min(self.heartbeat_increment)
        }
    }

    /// When ownership ends for sure.
    pub(crate) fn ends_at(&self) -> Instant {
        match self.hard {
            Some((at, _)) => at.min(self.ends_at),
            None => self.ends_at,
        }
    }

    /// When the handler must be told to stop so that it is over before the lease is, and why.
    pub(crate) fn stop_at(&self) -> (Instant, StopReason) {
        let (end, margin, reason) = self.limit();
        (before(end, margin), reason)
    }

    /// When a handler that was told and did not stop must be gone: a moment before the next run may begin.
    pub(crate) fn kill_at(&self) -> Instant {
        let (end, margin, _) = self.limit();
        before(end, margin / 8)
    }

    /// The limit that comes first: its end, how long before that the run is given up, and why it must stop.
    fn limit(&self) -> (Instant, Duration, StopReason) {
        let is_fixed = self.is_started && self.heartbeat_increment.is_zero();
        let lease = if is_fixed {
            let margin = self.hard_margin(self.heartbeat_timeout);
            (self.ends_at, margin, StopReason::Timeout)
        } else {
            (self.ends_at, self.soft_margin(), StopReason::Expired)
        };
        match self.hard {
            Some((end, margin)) if before(end, margin) <= before(lease.0, lease.1) => {
                (end, margin, StopReason::Timeout)
            }
            _ => lease,
        }
    }

    /// How long before the end of a lease that can be renewed a run is given up.
    fn soft_margin(&self) -> Duration {
        let margin = (self.renewable() / 4).min(self.kill_grace);
        if self.is_started {
            margin
        } else {
            // A run may begin when only a quarter of its claim is left, so half of that must be enough.
            margin.min(self.claim_timeout / 8)
        }
    }

    /// A limit the user set on purpose is used up nearly to its end.
    fn hard_margin(&self, limit: Duration) -> Duration {
        (limit / 10).min(self.kill_grace)
    }
}

fn before(at: Instant, margin: Duration) -> Instant {
    at.checked_sub(margin).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::assignment;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease(timeout: u64, increment: u64, now: Instant) -> Lease {
        let task = Assignment {
            heartbeat_timeout: s(timeout),
            heartbeat_increment: s(increment),
            claim_timeout: s(1_000),
            ..assignment(1)
        };
        let mut lease = Lease::claimed(&task, now, s(2));
        lease.begin(now, None);
        lease.start_sent(now);
        lease.start_kept(now, None);
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn f_047_the_end_is_the_later_of_the_present_one_and_now_plus_the_increment() {
        let now = Instant::now();
        let mut lease = lease(300, 10, now);
        lease.renewed(now + s(1), None);
        assert_eq!(lease.ends_at(), now + s(300));
        lease.renewed(now + s(295), None);
        assert_eq!(lease.ends_at(), now + s(305));
    }

    #[tokio::test(start_paused = true)]
    async fn f_048_without_an_increment_heartbeats_do_not_move_the_end() {
        let now = Instant::now();
        let mut lease = lease(20, 0, now);
        lease.renewed(now + s(10), Some(s(10)));
        assert_eq!(lease.ends_at(), now + s(20));
        assert_eq!(lease.stop_at(), (now + s(18), StopReason::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn f_047_an_increment_much_shorter_than_the_timeout_keeps_a_lease_that_is_heartbeaten() {
        let now = Instant::now();
        let mut lease = lease(8, 1, now);
        assert_eq!(lease.beat_interval(), Duration::from_millis(250));
        let mut at = now;
        while at < now + s(20) {
            at += lease.beat_interval();
            assert!(at < lease.stop_at().0, "stopped after {:?}", at - now);
            lease.renewed(at, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_on_its_way_shortens_a_long_claim_to_the_heartbeat_timeout() {
        let now = Instant::now();
        let task = Assignment {
            heartbeat_timeout: s(8),
            claim_timeout: s(60),
            ..assignment(1)
        };
        let mut lease = Lease::claimed(&task, now, s(5));
        assert_eq!(lease.ends_at(), now + s(60));
        lease.start_sent(now + s(1));
        assert_eq!(lease.ends_at(), now + s(9));
        assert_eq!(lease.stop_at(), (now + s(7), StopReason::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn f_149_the_third_missed_heartbeat_in_a_row_is_one_too_many() {
        let now = Instant::now();
        let mut lease = lease(8, 8, now);
        assert!(!lease.missed() && !lease.missed());
        lease.renewed(now, None);
        assert!(!lease.missed() && !lease.missed() && lease.missed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_run_timeout_ends_a_run_whatever_the_heartbeats_say() {
        let now = Instant::now();
        let mut lease = lease(8, 8, now);
        lease.begin(now, Some(s(10)));
        lease.renewed(now + s(9), None);
        assert_eq!(lease.stop_at(), (now + s(9), StopReason::Timeout));
        assert_eq!(lease.ends_at(), now + s(10));
    }
}
