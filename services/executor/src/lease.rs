//! How long a run may rely on its lease, on the monotonic clock of this process.

use std::time::Duration;

use dueline_api::Assignment;
use dueline_domain::Policy;
use tokio::time::Instant;

use crate::{StopReason, config::HEARTBEAT_INTERVAL_MIN};

/// A run stops after this many failed heartbeats in a row.
const FAILURES_MAX: u32 = 3;
/// How long before the end of a lease that heartbeats do not extend the run is stopped; a tenth of the lease if that is
/// less.
const HARD_MARGIN_MAX: Duration = Duration::from_millis(100);
/// Largest rounding error of a duration from the store, which rounds both ends to whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// What this process knows of a lease. Each time is measured from *before* the store can have set its own, so the end
/// known here is never later than the end in the store.
#[derive(Clone, Debug)]
pub(crate) struct LocalLease {
    heartbeat_timeout: Duration,
    heartbeat_increment: Duration,
    claim_timeout: Duration,
    run_timeout: Option<Duration>,
    kill_grace: Duration,
    /// When the lease ends unless it is renewed.
    ends_at: Instant,
    /// What ends the lease at `ends_at`, if that is a limit which heartbeats do not extend.
    fixed: Option<FixedEnd>,
    /// When the run timeout ends. Counts from the first time at which the run may have begun, so it is never later
    /// than the end of the run timeout in the store.
    run_ends_at: Option<Instant>,
    /// Whether the start is durable, so that heartbeats count.
    is_started: bool,
    /// Failed heartbeats in a row.
    failures: u32,
}

/// A limit that heartbeats do not extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FixedEnd {
    /// The lease lasts until the end of the run timeout, and usually for the grace after it.
    RunTimeout,
    /// The heartbeat increment is zero.
    HeartbeatTimeout,
}

impl LocalLease {
    /// The lease of a claim made at `claimed`.
    pub(crate) fn claimed(task: &Assignment, claimed: Instant, kill_grace: Duration) -> Self {
        let mut lease = Self {
            heartbeat_timeout: task.heartbeat_timeout,
            heartbeat_increment: task.heartbeat_increment,
            claim_timeout: task.claim_timeout,
            run_timeout: task.run_timeout,
            kill_grace,
            ends_at: claimed + task.claim_timeout,
            fixed: None,
            run_ends_at: None,
            is_started: task.started,
            failures: 0,
        };
        if task.started {
            lease.started_at(claimed);
        }
        lease
    }

    /// The run started with its claim: the heartbeat timeout and the run timeout both count from `claimed`.
    fn started_at(&mut self, claimed: Instant) {
        self.count_run_from(claimed);
        (self.ends_at, self.fixed) = (claimed + self.heartbeat_timeout, self.lasting());
        // The store gives the grace to each lease that lasts until the end of the run timeout.
        if let Some(deadline) = self.deadline()
            && self
                .run_timeout
                .is_some_and(|limit| limit <= self.heartbeat_timeout)
        {
            (self.ends_at, self.fixed) = (deadline, Some(FixedEnd::RunTimeout));
        }
    }

    /// The time after which the handler must not begin any more. `None` for a started run with a fixed limit: the time
    /// left would be the same on any other worker.
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

    /// A start is sent. Once it is stored, the heartbeat timeout and the run timeout count.
    pub(crate) fn start_sent(&mut self, sent: Instant) {
        self.count_run_from(sent);
        let end = sent + self.heartbeat_timeout;
        if end < self.ends_at {
            (self.ends_at, self.fixed) = (end, self.lasting());
        }
    }

    /// The start that was sent at `sent` is durable; the answer came at `answered`.
    pub(crate) fn start_stored(
        &mut self,
        sent: Instant,
        answered: Instant,
        left: Option<Duration>,
    ) {
        self.is_started = true;
        self.failures = 0;
        let end = sent + left.unwrap_or(self.heartbeat_timeout);
        (self.ends_at, self.fixed) = match self.least_end(answered, left) {
            Some(least) => (end.max(least), Some(FixedEnd::RunTimeout)),
            None => (end, self.lasting()),
        };
    }

    /// A heartbeat or other renewal that was sent at `sent` is durable; the answer came at `answered`. The end never
    /// moves backwards, see [`LocalLease`].
    pub(crate) fn renewed(&mut self, sent: Instant, answered: Instant, left: Option<Duration>) {
        self.failures = 0;
        if self.heartbeat_increment.is_zero() {
            return;
        }
        let mut end = sent + left.unwrap_or(self.heartbeat_increment);
        if let Some(least) = self.least_end(answered, left) {
            self.fixed = Some(FixedEnd::RunTimeout);
            end = end.max(least);
        }
        self.ends_at = self.ends_at.max(end);
    }

    fn count_run_from(&mut self, now: Instant) {
        if let (None, Some(limit)) = (self.run_ends_at, self.run_timeout) {
            self.run_ends_at = Some(now + limit);
        }
    }

    /// When the lease ends even if it is renewed: the grace after the run timeout, as in the store.
    fn deadline(&self) -> Option<Instant> {
        self.run_ends_at.map(|end| end + Policy::RUN_GRACE)
    }

    /// The heartbeat timeout as a fixed limit, if heartbeats do not extend the lease.
    fn lasting(&self) -> Option<FixedEnd> {
        let is_fixed = self.heartbeat_increment.is_zero();
        is_fixed.then_some(FixedEnd::HeartbeatTimeout)
    }

    /// If a lease that ends in `left` lasts until the end of the run timeout: a time before which it does not end. The
    /// store returns the earlier of the lease's own end and the deadline, and both the end of the run timeout and the
    /// deadline in the store are not earlier than those known here. Counting `left` from the time at which the report
    /// was sent is too early by the duration of the call, and must not shorten the end known before.
    fn least_end(&self, answered: Instant, left: Option<Duration>) -> Option<Instant> {
        let (run_ends_at, deadline) = (self.run_ends_at?, self.deadline()?);
        let end = answered + left? + ROUNDING;
        if end >= deadline {
            return Some(deadline);
        }
        (end >= run_ends_at).then(|| self.ends_at.min(run_ends_at))
    }

    /// Counts a failed heartbeat. Returns whether the run must stop.
    pub(crate) fn heartbeat_failed(&mut self) -> bool {
        self.failures += 1;
        self.failures >= FAILURES_MAX
    }

    /// Whether heartbeats count.
    pub(crate) const fn is_started(&self) -> bool {
        self.is_started
    }

    /// Longest heartbeat interval with which the third failure in a row still stops the run before the lease ends.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        (self.renewable() / 4).max(HEARTBEAT_INTERVAL_MIN)
    }

    /// How long the lease lasts after one heartbeat, in the long run.
    fn renewable(&self) -> Duration {
        if self.heartbeat_increment.is_zero() {
            self.heartbeat_timeout
        } else {
            self.heartbeat_timeout.min(self.heartbeat_increment)
        }
    }

    /// When the lease ends unless it is renewed; the deadline if that is earlier.
    pub(crate) fn ends_at(&self) -> Instant {
        self.deadline()
            .map_or(self.ends_at, |at| at.min(self.ends_at))
    }

    /// When the handler must get its stop signal, and the reason.
    pub(crate) fn stop_at(&self) -> (Instant, StopReason) {
        let (lease, run) = (self.lease_limit(), self.run_limit());
        let first = run.filter(|run| run.stop_at <= lease.stop_at);
        let first = first.unwrap_or(lease);
        (first.stop_at, first.reason)
    }

    /// When a handler that ignores its stop signal must be dropped: before the next run may begin.
    pub(crate) fn kill_at(&self) -> Instant {
        let kill_at = self.lease_limit().kill_at;
        self.run_limit()
            .map_or(kill_at, |run| run.kill_at.min(kill_at))
    }

    /// The end of the run timeout. The handler may use all of it, because the lease lasts for the grace after it.
    fn run_limit(&self) -> Option<RunLimit> {
        let end = self.run_ends_at?;
        Some(RunLimit {
            stop_at: end,
            kill_at: end + Policy::RUN_GRACE / 2,
            reason: StopReason::Timeout,
        })
    }

    /// The end of the lease.
    fn lease_limit(&self) -> RunLimit {
        match (self.fixed, self.run_limit()) {
            // A status controller of an older version gives no grace.
            (Some(FixedEnd::RunTimeout), Some(run)) if Some(self.ends_at) >= self.deadline() => run,
            (Some(FixedEnd::RunTimeout), _) => {
                self.fixed_lease_limit(self.run_timeout.unwrap_or_default())
            }
            (Some(FixedEnd::HeartbeatTimeout), _) => self.fixed_lease_limit(self.heartbeat_timeout),
            (None, _) => self.renewable_lease_limit(),
        }
    }

    /// The end of a lease that can be renewed. The margin must cover stopping the handler and sending the last report.
    fn renewable_lease_limit(&self) -> RunLimit {
        let mut margin = (self.renewable() / 4).min(self.kill_grace);
        if !self.is_started {
            // A run may begin when only a quarter of the claim timeout is left; the margin takes at most half of that.
            margin = margin.min(self.claim_timeout / 8);
        }
        RunLimit {
            stop_at: before(self.ends_at, margin),
            kill_at: before(self.ends_at, margin / 8),
            reason: StopReason::Expired,
        }
    }

    /// The end of a lease that heartbeats do not extend, which the handler may use almost completely.
    fn fixed_lease_limit(&self, lasts: Duration) -> RunLimit {
        let margin = (lasts / 10).min(HARD_MARGIN_MAX).min(self.kill_grace);
        RunLimit {
            stop_at: before(self.ends_at, margin),
            kill_at: before(self.ends_at, margin / 2),
            reason: StopReason::Timeout,
        }
    }
}

/// What ends a run.
struct RunLimit {
    /// When the handler gets its stop signal.
    stop_at: Instant,
    /// When the handler is dropped.
    kill_at: Instant,
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

    fn lease(timeout: u64, increment: u64, now: Instant) -> LocalLease {
        let task = Assignment {
            heartbeat_timeout: s(timeout),
            heartbeat_increment: s(increment),
            claim_timeout: s(1_000),
            ..assignment(1)
        };
        let mut lease = LocalLease::claimed(&task, now, s(2));
        lease.begin(now);
        lease.start_sent(now);
        lease.start_stored(now, now, None);
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn f_047_the_end_is_the_later_of_the_current_end_and_now_plus_the_increment() {
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
    async fn f_047_an_increment_much_shorter_than_the_timeout_keeps_a_heartbeaten_lease() {
        let now = Instant::now();
        let mut lease = lease(8, 1, now);
        assert_eq!(lease.heartbeat_interval(), Duration::from_millis(250));
        let mut at = now;
        while at < now + s(20) {
            at += lease.heartbeat_interval();
            assert!(at < lease.stop_at().0, "stopped after {:?}", at - now);
            lease.renewed(at, at, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_in_flight_shortens_a_long_claim_to_the_heartbeat_timeout() {
        let now = Instant::now();
        let task = Assignment {
            heartbeat_timeout: s(8),
            claim_timeout: s(60),
            ..assignment(1)
        };
        let mut lease = LocalLease::claimed(&task, now, s(5));
        assert_eq!(lease.ends_at(), now + s(60));
        lease.start_sent(now + s(1));
        assert_eq!(lease.ends_at(), now + s(9));
        assert_eq!(lease.stop_at(), (now + s(7), StopReason::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn f_149_the_third_failed_heartbeat_in_a_row_stops_the_run() {
        let now = Instant::now();
        let mut lease = lease(8, 8, now);
        assert!(!lease.heartbeat_failed() && !lease.heartbeat_failed());
        lease.renewed(now, now, None);
        assert!(!lease.heartbeat_failed() && !lease.heartbeat_failed());
        assert!(lease.heartbeat_failed());
    }

    /// The lease of a run whose handler began and whose start was sent at `now`.
    fn limited(run_timeout: Duration, now: Instant) -> LocalLease {
        let task = Assignment {
            run_timeout: Some(run_timeout),
            ..assignment(1)
        };
        let mut lease = LocalLease::claimed(&task, now, s(5));
        lease.begin(now);
        lease.start_sent(now);
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_do_not_extend_the_run_timeout() {
        let now = Instant::now();
        let mut lease = limited(s(10), now);
        lease.start_stored(now, now, None);
        lease.renewed(now + s(9), now + s(9), None);
        assert_eq!(lease.stop_at(), (now + s(10), StopReason::Timeout));
        assert_eq!(lease.ends_at(), now + s(10) + Policy::RUN_GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_26_a_run_gets_its_whole_run_timeout_and_ends_before_the_lease_does() {
        let now = Instant::now();
        for limit in [1, 20, 50, 600, 2_000, 2_500, 3_000, 5_000, 7_999].map(Duration::from_millis)
        {
            let mut lease = limited(limit, now);
            let expected = (now + limit, StopReason::Timeout);
            // For longer limits, the unanswered start stops the run earlier.
            if limit < s(6) {
                assert_eq!(lease.stop_at(), expected, "{limit:?}, not answered");
            }
            // The call takes a tenth of the limit, half of it after the store has read its clock.
            let (answered, left) = (now + limit / 10, limit - limit / 20 + Policy::RUN_GRACE);
            lease.start_stored(now, answered, Some(left));
            assert_eq!(lease.stop_at(), expected, "{limit:?}, answered");
            assert_eq!(lease.ends_at(), now + limit + Policy::RUN_GRACE);
            assert!(lease.kill_at() > now + limit && lease.kill_at() < lease.ends_at());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_26_a_run_whose_store_gives_no_grace_ends_before_its_run_timeout_does() {
        let now = Instant::now();
        for limit in [20, 600, 5_000].map(Duration::from_millis) {
            let mut lease = limited(limit, now);
            lease.start_stored(now, now + limit / 10, Some(limit - limit / 20));
            let stop = now + limit - (limit / 10).min(HARD_MARGIN_MAX);
            assert_eq!(lease.stop_at(), (stop, StopReason::Timeout), "{limit:?}");
            assert!(lease.kill_at() < now + limit);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_up_to_the_deadline_keep_no_margin_and_shorter_ones_do() {
        let now = Instant::now();
        let mut lease = limited(s(10), now);
        lease.start_stored(now, now, Some(s(8)));
        assert_eq!(lease.stop_at(), (now + s(6), StopReason::Expired));
        let at = now + s(1);
        lease.renewed(at, at, Some(s(8)));
        assert_eq!(lease.stop_at(), (now + s(7), StopReason::Expired));
        let at = now + s(4);
        lease.renewed(at, at, Some(s(6) + Policy::RUN_GRACE));
        assert_eq!(lease.stop_at(), (now + s(10), StopReason::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_is_dropped_before_a_lease_that_ends_within_the_grace() {
        let now = Instant::now();
        let mut lease = limited(s(10), now);
        // An older status controller gives no grace, and the store began to count a little later than this process.
        lease.start_stored(now, now, Some(s(10) + Policy::RUN_GRACE / 4));
        assert_eq!(lease.stop_at(), (now + s(10), StopReason::Timeout));
        assert!(lease.kill_at() < lease.ends_at());
        assert_eq!(lease.ends_at(), now + s(10) + Policy::RUN_GRACE / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_increment_the_end_is_fixed_even_while_the_start_is_in_flight() {
        let now = Instant::now();
        let task = Assignment {
            heartbeat_timeout: Duration::from_millis(2_500),
            heartbeat_increment: Duration::ZERO,
            ..assignment(1)
        };
        let mut lease = LocalLease::claimed(&task, now, s(5));
        lease.begin(now);
        lease.start_sent(now);
        let expected = (now + Duration::from_millis(2_400), StopReason::Timeout);
        assert_eq!(lease.stop_at(), expected);
        lease.start_stored(now, now, Some(Duration::from_millis(2_500)));
        assert_eq!(lease.stop_at(), expected);
    }
}
