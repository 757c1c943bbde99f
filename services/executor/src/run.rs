//! A run: one claimed task in this executor, from its dispatch to its last report.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use dueline_api::{Action, ApiError, Assignment, ErrorKind, ErrorReason, ReportAck};
use dueline_domain::Timestamp;
use dueline_ports::Clock;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};

use crate::{StopReason, handlers::exec_groups::ProcessGroups, lease::LocalLease};

/// What all runs of an executor share.
pub(crate) struct RunContext {
    /// The channel to the reporter.
    pub(crate) reports: mpsc::Sender<RunReport>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kill_grace: Duration,
    /// The process groups of running commands.
    pub(crate) groups: ProcessGroups,
}

impl RunContext {
    /// Sends a report to the reporter. The reporter outlives all slots, so this fails only while the executor is
    /// dropped.
    pub(crate) async fn report(&self, report: RunReport) {
        if self.reports.send(report).await.is_err() {
            tracing::debug!("the reporter has ended; a report was dropped");
        }
    }

    /// Abandons claims that never began. No try is used.
    pub(crate) async fn abandon(&self, runs: Vec<Arc<Run>>) {
        for run in runs {
            self.report(RunReport::new(run, Action::Abandon)).await;
        }
    }
}

/// A report of a run, for the reporter.
pub(crate) struct RunReport {
    pub(crate) run: Arc<Run>,
    pub(crate) action: Action,
    /// Where the answer is sent, if the sender waits for it.
    pub(crate) reply: Option<oneshot::Sender<Result<ReportAck, ApiError>>>,
}

impl RunReport {
    pub(crate) fn new(run: Arc<Run>, action: Action) -> Self {
        let reply = None;
        Self { run, action, reply }
    }

    /// A report whose answer is sent to `reply`.
    pub(crate) fn with_reply(
        run: Arc<Run>,
        action: Action,
        reply: oneshot::Sender<Result<ReportAck, ApiError>>,
    ) -> Self {
        let reply = Some(reply);
        Self { run, action, reply }
    }

    pub(crate) fn answer(self, answer: Result<ReportAck, ApiError>) {
        if let Some(reply) = self.reply {
            // The receiver may be gone; the report counts without it.
            let _ = reply.send(answer);
        }
    }
}

/// A claimed task, from its dispatch to its last report.
pub(crate) struct Run {
    /// Identifies the run within this executor.
    pub(crate) number: u64,
    pub(crate) task: Assignment,
    /// The handler must not begin after this time: the lease could end while it does.
    pub(crate) begin_by: Option<Instant>,
    /// Longest allowed interval between heartbeats.
    pub(crate) heartbeat_interval: Duration,
    pub(crate) context: Arc<RunContext>,
    start_report: Mutex<StartReport>,
    state: Mutex<RunState>,
    /// Signalled when the lease or the stop reason has changed.
    changed: Notify,
    /// The trace context of the run's own span, once the handler begins and if the run is traced.
    trace: OnceLock<Arc<str>>,
}

/// How the start of a run is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartReport {
    /// Not reported yet.
    Pending,
    /// As a report of its own, which has been sent.
    Sent,
    /// With the outcome.
    Merged,
    /// Not at all: the run started with its claim.
    Claimed,
}

struct RunState {
    lease: LocalLease,
    begun_at: Option<Timestamp>,
    /// When the run began, or when its latest heartbeat was requested.
    heartbeat_at: Instant,
    stop: Option<(StopReason, Instant)>,
    /// Whether the outcome is decided, by the handler's return or earlier.
    is_over: bool,
}

impl Run {
    /// A run of a task claimed at `claimed`.
    pub(crate) fn new(
        number: u64,
        task: Assignment,
        claimed: Instant,
        context: Arc<RunContext>,
    ) -> Self {
        let lease = LocalLease::claimed(&task, claimed, context.kill_grace);
        let start_report = match task.started {
            true => StartReport::Claimed,
            false => StartReport::Pending,
        };
        Self {
            number,
            begin_by: lease.begin_by(claimed),
            heartbeat_interval: lease.heartbeat_interval(),
            task,
            context,
            start_report: Mutex::new(start_report),
            state: Mutex::new(RunState {
                lease,
                begun_at: None,
                heartbeat_at: claimed,
                stop: None,
                is_over: false,
            }),
            changed: Notify::new(),
            trace: OnceLock::new(),
        }
    }

    /// Records the trace context of the run's own span.
    pub(crate) fn set_trace(&self, trace: Arc<str>) {
        // A run begins once.
        let _ = self.trace.set(trace);
    }

    /// The trace context that the handler continues: that of the run, or else the one that came with the task.
    pub(crate) fn trace(&self) -> Option<&str> {
        let own = self.trace.get().or(self.task.trace.as_ref());
        own.map(|trace| &**trace)
    }

    /// The trace context of the run for the report of its end.
    pub(crate) fn trace_of_end(&self, action: &Action) -> Option<Arc<str>> {
        match action {
            Action::Finish { .. } | Action::Abandon | Action::Trash { .. } => {
                self.trace.get().cloned()
            }
            Action::Start
            | Action::Heartbeat
            | Action::Extend { .. }
            | Action::Checkpoint { .. } => None,
        }
    }

    pub(crate) fn weight(&self) -> u32 {
        u32::from(self.task.weight.get())
    }

    /// How the start is reported, which the reporter decides.
    pub(crate) fn start_report(&self) -> MutexGuard<'_, StartReport> {
        let lock = self.start_report.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the handler begins.
    pub(crate) fn begin(&self) {
        let begun_at = self.context.clock.now();
        let mut state = self.state();
        state.begun_at = Some(begun_at);
        let now = Instant::now();
        // The lease of a run that started with its claim counts from the claim.
        if !self.task.started {
            state.heartbeat_at = now;
        }
        state.lease.begin(now);
    }

    /// When the handler began, by the wall clock.
    pub(crate) fn begun_at(&self) -> Option<Timestamp> {
        self.state().begun_at
    }

    /// Marks the outcome as decided. Fails if it already is, or if the task is lost.
    pub(crate) fn end(&self) -> Result<(), ApiError> {
        let mut state = self.state();
        if let Some((StopReason::Lost, _)) = state.stop {
            return Err(lost());
        }
        if std::mem::replace(&mut state.is_over, true) {
            return Err(finished());
        }
        Ok(())
    }

    /// Whether the outcome is decided.
    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// When the lease ends unless it is renewed.
    pub(crate) fn lease_ends_at(&self) -> Instant {
        self.state().lease.ends_at()
    }

    /// Whether heartbeats can renew the lease now.
    pub(crate) fn wants_heartbeat(&self) -> bool {
        self.state().wants_heartbeat()
    }

    /// Returns whether to heartbeat now, and records it. Heartbeats are `usual` apart, or less for a short lease. A
    /// heartbeat that would be late at the next check, in one `period`, is due now.
    pub(crate) fn takes_heartbeat(&self, now: Instant, usual: Duration, period: Duration) -> bool {
        let mut state = self.state();
        let due_at = state.heartbeat_at + self.heartbeat_interval.min(usual);
        let is_due = state.wants_heartbeat() && due_at < now + period;
        if is_due {
            state.heartbeat_at = now;
        }
        is_due
    }

    /// Updates the lease and wakes the tasks that wait for its end.
    pub(crate) fn update_lease(&self, change: impl FnOnce(&mut LocalLease)) {
        change(&mut self.state().lease);
        self.changed.notify_waiters();
    }

    /// Counts a failed heartbeat; too many in a row stop the run.
    pub(crate) fn heartbeat_failed(&self) {
        if self.state().lease.heartbeat_failed() {
            self.stop(StopReason::Expired);
        }
    }

    /// Signals the run to stop. The first reason stays, unless a later one is [`StopReason::Lost`].
    pub(crate) fn stop(&self, reason: StopReason) {
        let mut state = self.state();
        match &mut state.stop {
            None => state.stop = Some((reason, Instant::now())),
            Some((known, _)) if reason == StopReason::Lost => *known = reason,
            Some(_) => return,
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Why the run must stop, if it must. Checks the lease, so that its end counts at once.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        let mut state = self.state();
        state.check_lease();
        state.stop.map(|(reason, _)| reason)
    }

    /// Waits until the run must stop. Cancel safe.
    pub(crate) async fn stopped(&self) -> StopReason {
        self.wait_until(|state| match state.stop {
            Some((reason, _)) => Ok(reason),
            None => Err(state.wakes_at()),
        })
        .await
    }

    /// Waits until the task is lost or its lease is about to end. Cancel safe.
    pub(crate) async fn expired(&self) {
        self.wait_until(|state| match state.stop {
            Some((StopReason::Lost | StopReason::Expired | StopReason::Timeout, _)) => Ok(()),
            _ if state.lease.stop_at().0 <= Instant::now() => Ok(()),
            _ => Err(Some(state.lease.stop_at().0)),
        })
        .await;
    }

    /// Waits until the kill grace of a stopped run is over. Cancel safe.
    pub(crate) async fn grace_is_over(&self) {
        let grace = self.context.kill_grace;
        self.wait_until(|state| {
            let Some((reason, since)) = state.stop else {
                return Err(state.wakes_at());
            };
            let mut until = since + grace;
            // The handler must not outlive its lease, because the next run may begin then.
            if reason != StopReason::Lost && !state.is_over {
                until = until.min(state.lease.kill_at());
            }
            if until <= Instant::now() {
                Ok(())
            } else {
                Err(Some(until))
            }
        })
        .await;
    }

    /// Waits until `check` returns `Ok`. An `Err` says when to check again at the latest.
    async fn wait_until<T>(&self, check: impl Fn(&RunState) -> Result<T, Option<Instant>>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Enabled before the check, so that a change in between is not missed.
            changed.as_mut().enable();
            let answer = {
                let mut state = self.state();
                if state.check_lease() {
                    self.changed.notify_waiters();
                }
                check(&state)
            };
            match answer {
                Ok(answer) => return answer,
                Err(None) => changed.await,
                Err(Some(at)) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
            }
        }
    }
}

impl RunState {
    /// Stops the run if its lease or its run timeout is about to end. Returns whether that was the first stop.
    fn check_lease(&mut self) -> bool {
        if self.stop.is_some() || self.is_over {
            return false;
        }
        let (at, reason) = self.lease.stop_at();
        let now = Instant::now();
        if at <= now {
            self.stop = Some((reason, now));
        }
        self.stop.is_some()
    }

    fn wants_heartbeat(&self) -> bool {
        let is_dead = matches!(self.stop, Some((StopReason::Lost | StopReason::Expired, _)));
        self.lease.is_started() && !self.is_over && !is_dead
    }

    fn wakes_at(&self) -> Option<Instant> {
        (!self.is_over).then(|| self.lease.stop_at().0)
    }
}

/// The error of a report for a task that this worker does not own any more.
pub(crate) fn lost() -> ApiError {
    let message = "another worker owns the task now, or it has ended; stop this run";
    ApiError::new(ErrorKind::Conflict, ErrorReason::Lost, message)
}

/// The error of a report for a run whose outcome is decided.
pub(crate) fn finished() -> ApiError {
    let message = "the run is finished; a run has one outcome";
    ApiError::new(ErrorKind::Conflict, ErrorReason::Finished, message)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bytes::Bytes;
    use dueline_domain::{Handler, JobName, TaskId, Token, Weight};

    struct NoClock;

    impl Clock for NoClock {
        fn now(&self) -> Timestamp {
            Timestamp::EPOCH
        }
    }

    /// A task of weight one with the default timeouts.
    pub(crate) fn assignment(number: u8) -> Assignment {
        Assignment {
            job: JobName::parse("job").unwrap(),
            id: TaskId::from_bytes([number; 16]),
            token: Token::from_random(u64::from(number)),
            attempt: 0,
            input: Bytes::new(),
            content_type: None,
            name: None,
            weight: Weight::ONE,
            run_at: Timestamp::EPOCH,
            claimed_at: Timestamp::EPOCH,
            handler: Handler::worker(),
            claim_timeout: Duration::from_secs(10),
            heartbeat_timeout: Duration::from_secs(8),
            heartbeat_increment: Duration::from_secs(8),
            run_timeout: None,
            start_first: false,
            started_before: false,
            trace: None,
            started: false,
            results: Vec::new(),
            waited: Duration::ZERO,
        }
    }

    /// A run whose reports are dropped.
    pub(crate) fn run(number: u8, task: Assignment) -> Arc<Run> {
        let (reports, _) = mpsc::channel(1);
        let (clock, kill_grace) = (Arc::new(NoClock), Duration::from_secs(5));
        let context = Arc::new(RunContext {
            reports,
            clock,
            kill_grace,
            groups: ProcessGroups::default(),
        });
        Arc::new(Run::new(u64::from(number), task, Instant::now(), context))
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_stop_reason_stays_unless_the_task_is_lost() {
        let run = run(1, assignment(1));
        run.stop(StopReason::Cancelled);
        run.stop(StopReason::Shutdown);
        assert_eq!(run.stop_reason(), Some(StopReason::Cancelled));
        run.stop(StopReason::Lost);
        assert_eq!(run.stopped().await, StopReason::Lost);
        assert!(run.end().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn f_041_expiry_fires_in_time_and_a_heartbeat_delays_it() {
        let second = Duration::from_secs(1);
        let task = Assignment {
            heartbeat_timeout: second,
            heartbeat_increment: second,
            ..assignment(1)
        };
        let run = run(1, task);
        let begun = Instant::now();
        run.update_lease(|lease| {
            lease.start_sent(begun);
            lease.start_stored(begun, begun, None);
        });
        tokio::time::sleep(second / 2).await;
        let now = Instant::now();
        run.update_lease(|lease| lease.renewed(now, now, None));
        assert!(run.stop_reason().is_none());
        run.expired().await;
        let expected = Duration::from_millis(1_250);
        assert!(begun.elapsed() - expected < Duration::from_millis(5));
        assert_eq!(run.stop_reason(), Some(StopReason::Expired));
    }
}
