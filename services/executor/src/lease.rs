//! How long this executor may believe that a task is its own, on the monotonic clock.

use std::time::Duration;

use dueline_api::Assignment;
use tokio::time::Instant;

use crate::{StopReason, beat::INTERVAL_MIN};

/// A run ends when this many heartbeats in a row were not answered.
const MISSES_MAX: u32 = 3;
/// A limit the user set is used up to this moment before its end, or to a tenth of it when it is very short.
const HARD_MARGIN_MAX: Duration = Duration::from_millis(100);
/// The store counts in whole milliseconds, at both ends of what it tells.
const ROUNDING: Duration = Duration::from_millis(2);

/// What is known here of a lease. Each time is reckoned from a moment *before* the store can have set its own, so
/// the end known here is never later than the real one.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    heartbeat_timeout: Duration,
    heartbeat_increment: Duration,
    claim_timeout: Duration,
    run_timeout: Option<Duration>,
    kill_grace: Duration,
    /// When the lease lapses unless it is renewed.
    ends_at: Instant,
    /// The limit that makes it end then, where that is one which no heartbeat moves.
    fixed: Option<Duration>,
    /// When the run must be over whatever the heartbeats say: it began when the run timeout began to count here, so
    /// it is never later than the deadline in the store.
    deadline: Option<Instant>,
    /// Whether the start is durable, so that heartbeats count.
    is_started: bool,
    misses: u32,
}

impl Lease {
    /// The lease of a claim that counts from `claimed` on.
    pub(crate) fn claimed(task: &Assignment, claimed: Instant, kill_grace: Duration) -> Self {
        let mut lease = Self {
            heartbeat_timeout: task.heartbeat_timeout,
            heartbeat_increment: task.heartbeat_increment,
            claim_timeout: task.claim_timeout,
            run_timeout: task.run_timeout,
            kill_grace,
            ends_at: claimed + task.claim_timeout,
            fixed: None,
            deadline: None,
            is_started: task.started,
            misses: 0,
        };
        if task.started {
            lease.started_at(claimed);
        }
        lease
    }

    /// The run began at `claimed`, with its claim, and both the heartbeat timeout and the run timeout count from there.
    fn started_at(&mut self, claimed: Instant) {
        self.count_run_from(claimed);
        self.ends_at = claimed + self.heartbeat_timeout;
        let is_due = |limit: &Duration| *limit <= self.heartbeat_timeout;
        self.fixed = self.run_timeout.filter(is_due).or(self.lasting());
    }

    /// After this a run that has not begun must not begin any more; `None` for one whose limit no heartbeat moves,
    /// which is over when it is over, wherever it is begun.
    pub(crate) fn begin_by(&self, claimed: Instant) -> Option<Instant> {
        if !self.is_started {
            return Some(claimed + self.claim_timeout * 3 / 4);
        }
        let (at, reason) = self.stop_at();
        (reason == StopReason::Expired).then_some(at)
    }

    /// The handler begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.count_run_from(now);
    }

    /// A start goes out, and from the moment it is stored the heartbeat timeout and the run timeout count.
    pub(crate) fn start_sent(&mut self, sent: Instant) {
        self.count_run_from(sent);
        let end = sent + self.heartbeat_timeout;
        if end < self.ends_at {
            (self.ends_at, self.fixed) = (end, self.lasting());
        }
    }

    /// The start that went out at `sent` is durable, and the answer came at `answered`.
    pub(crate) fn start_kept(&mut self, sent: Instant, answered: Instant, left: Option<Duration>) {
        self.is_started = true;
        self.misses = 0;
        let known = self.ends_at;
        let mut end = sent + left.unwrap_or(self.heartbeat_timeout);
        let due = self.due_to_deadline(answered, left);
        if let (Some(_), Some(deadline)) = (due, self.deadline) {
            // How long the answer took shortens what it says, but not what was known before.
            end = end.max(known.min(deadline));
        }
        (self.ends_at, self.fixed) = (end, due.or(self.lasting()));
    }

    /// A sign of life that went out at `sent` is durable, and the answer came at `answered`. The end never moves
    /// back, see [`Lease`].
    pub(crate) fn renewed(&mut self, sent: Instant, answered: Instant, left: Option<Duration>) {
        self.misses = 0;
        if self.heartbeat_increment.is_zero() {
            return;
        }
        let due = self.due_to_deadline(answered, left);
        if due.is_some() {
            self.fixed = due;
        }
        let end = sent + left.unwrap_or(self.heartbeat_increment);
        self.ends_at = self.ends_at.max(end);
    }

    fn count_run_from(&mut self, now: Instant) {
        if let (None, Some(limit)) = (self.deadline, self.run_timeout) {
            self.deadline = Some(now + limit);
        }
    }

    /// The heartbeat timeout as a limit, where heartbeats do not help.
    fn lasting(&self) -> Option<Duration> {
        let is_fixed = self.heartbeat_increment.is_zero();
        is_fixed.then_some(self.heartbeat_timeout)
    }

    /// The run timeout, if it is what ends the lease of which so much was `left`: the store tells the earlier of the
    /// lease's own end and the deadline, and the deadline there is not before the one here.
    fn due_to_deadline(&self, answered: Instant, left: Option<Duration>) -> Option<Duration> {
        let (deadline, left) = (self.deadline?, left?);
        let reaches = answered + left + ROUNDING >= deadline;
        self.run_timeout.filter(|_| reaches)
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
        self.deadline
            .map_or(self.ends_at, |at| at.min(self.ends_at))
    }

    /// When the handler must be told to stop so that it is over before the lease is, and why.
    pub(crate) fn stop_at(&self) -> (Instant, StopReason) {
        let limit = self.limit();
        (before(limit.end, limit.margin), limit.reason)
    }

    /// When a handler that was told and did not stop must be gone: a moment before the next run may begin.
    pub(crate) fn kill_at(&self) -> Instant {
        let limit = self.limit();
        before(limit.end, limit.last_moment)
    }

    /// The limit that comes first.
    fn limit(&self) -> Limit {
        let lease = match self.fixed {
            Some(limit) => self.hard(self.ends_at, limit),
            None => self.soft(self.ends_at),
        };
        match (self.deadline, self.run_timeout) {
            (Some(end), Some(limit)) => {
                let run = self.hard(end, limit);
                if before(run.end, run.margin) <= before(lease.end, lease.margin) {
                    run
                } else {
                    lease
                }
            }
            _ => lease,
        }
    }

    /// A lease that can be renewed: what is left of it when no renewal came must do for the whole farewell.
    fn soft(&self, end: Instant) -> Limit {
        let mut margin = (self.renewable() / 4).min(self.kill_grace);
        if !self.is_started {
            // A run may begin when only a quarter of its claim is left, so half of that must be enough.
            margin = margin.min(self.claim_timeout / 8);
        }
        Limit {
            end,
            margin,
            last_moment: margin / 8,
            reason: StopReason::Expired,
        }
    }

    /// A limit the user set on purpose is used up nearly to its end.
    fn hard(&self, end: Instant, limit: Duration) -> Limit {
        let margin = (limit / 10).min(HARD_MARGIN_MAX).min(self.kill_grace);
        Limit {
            end,
            margin,
            last_moment: margin / 2,
            reason: StopReason::Timeout,
        }
    }
}

/// What ends a run.
struct Limit {
    end: Instant,
    /// How long before the end the handler is told.
    margin: Duration,
    /// How long before the end it must be gone.
    last_moment: Duration,
    reason: StopReason,
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
        lease.begin(now);
        lease.start_sent(now);
        lease.start_kept(now, now, None);
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn f_047_the_end_is_the_later_of_the_present_one_and_now_plus_the_increment() {
        let now = Instant::now();
        let mut lease = lease(300, 10, now);
        lease.renewed(now + s(1), now + s(1), None);
        assert_eq!(lease.ends_at(), now + s(300));
        lease.renewed(now + s(295), now + s(295), None);
        assert_eq!(lease.ends_at(), now + s(305));
    }

    #[tokio::test(start_paused = true)]
    async fn f_048_without_an_increment_heartbeats_do_not_move_the_end() {
        let now = Instant::now();
        let mut lease = lease(20, 0, now);
        lease.renewed(now + s(10), now + s(10), Some(s(10)));
        assert_eq!(lease.ends_at(), now + s(20));
        assert_eq!(
            lease.stop_at(),
            (now + s(20) - HARD_MARGIN_MAX, StopReason::Timeout)
        );
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
            lease.renewed(at, at, None);
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
        lease.renewed(now, now, None);
        assert!(!lease.missed() && !lease.missed() && lease.missed());
    }

    /// The lease of a run whose handler began at `now` and whose start went out then.
    fn limited(run_timeout: Duration, now: Instant) -> Lease {
        let task = Assignment {
            run_timeout: Some(run_timeout),
            ..assignment(1)
        };
        let mut lease = Lease::claimed(&task, now, s(5));
        lease.begin(now);
        lease.start_sent(now);
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn the_run_timeout_ends_a_run_whatever_the_heartbeats_say() {
        let now = Instant::now();
        let mut lease = limited(s(10), now);
        lease.start_kept(now, now, None);
        lease.renewed(now + s(9), now + s(9), None);
        let told = now + s(10) - HARD_MARGIN_MAX;
        assert_eq!(lease.stop_at(), (told, StopReason::Timeout));
        assert_eq!(lease.ends_at(), now + s(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_the_deadline_cuts_short_keeps_no_margin_for_renewals() {
        let now = Instant::now();
        for limit in [1, 20, 50, 500, 2_000, 2_500, 3_000, 5_000, 7_999].map(Duration::from_millis)
        {
            let mut lease = limited(limit, now);
            let told = now + limit - (limit / 10).min(HARD_MARGIN_MAX);
            let expected = (told, StopReason::Timeout);
            // Longer ones are bound to a start that may still fail.
            if limit < s(6) {
                assert_eq!(lease.stop_at(), expected, "{limit:?}, not answered");
            }
            // The answer takes a tenth of the limit, and half of that passes after the store looked at its clock.
            let answered = now + limit / 10;
            lease.start_kept(now, answered, Some(limit - limit / 20));
            assert_eq!(lease.stop_at(), expected, "{limit:?}, answered");
            assert!(lease.kill_at() > told && lease.kill_at() < now + limit);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_up_to_the_deadline_keep_no_margin_and_shorter_ones_do() {
        let now = Instant::now();
        let mut lease = limited(s(10), now);
        lease.start_kept(now, now, Some(s(8)));
        assert_eq!(lease.stop_at(), (now + s(6), StopReason::Expired));
        let at = now + s(1);
        lease.renewed(at, at, Some(s(8)));
        assert_eq!(lease.stop_at(), (now + s(7), StopReason::Expired));
        let at = now + s(4);
        lease.renewed(at, at, Some(s(6)));
        let told = now + s(10) - HARD_MARGIN_MAX;
        assert_eq!(lease.stop_at(), (told, StopReason::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_increment_even_a_start_on_its_way_has_a_fixed_end() {
        let now = Instant::now();
        let task = Assignment {
            heartbeat_timeout: Duration::from_millis(2_500),
            heartbeat_increment: Duration::ZERO,
            ..assignment(1)
        };
        let mut lease = Lease::claimed(&task, now, s(5));
        lease.begin(now);
        lease.start_sent(now);
        let expected = (now + Duration::from_millis(2_400), StopReason::Timeout);
        assert_eq!(lease.stop_at(), expected);
        lease.start_kept(now, now, Some(Duration::from_millis(2_500)));
        assert_eq!(lease.stop_at(), expected);
    }
}
