//! One claimed task on its way through this executor.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_api::{ApiError, Assignment, ErrorKind};
use dueline_domain::Timestamp;
use dueline_ports::Clock;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use crate::{handlers::exec_groups::Groups, lease::Lease, reporter::Item};

/// Why a run must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The task belongs to another worker now, or has ended.
    Lost,
    /// The lease could not be renewed in time.
    Expired,
    /// It ran for as long as it may.
    Timeout,
    /// A user asked for it.
    Cancelled,
    /// The executor is going.
    Shutdown,
}

impl StopReason {
    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Expired => "expired",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What all runs of an executor share.
pub(crate) struct Ctx {
    pub(crate) reports: mpsc::Sender<Item>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kill_grace: Duration,
    /// Processes of the commands that run.
    pub(crate) groups: Groups,
}

/// A claimed task, from its arrival to its last report.
pub(crate) struct Run {
    /// Tells runs of this executor apart.
    pub(crate) number: u64,
    pub(crate) task: Assignment,
    /// After this the lease may lapse while the run begins, so it must not begin any more.
    pub(crate) begin_by: Option<Instant>,
    /// It needs a heartbeat at least this often.
    pub(crate) beat_interval: Duration,
    pub(crate) ctx: Arc<Ctx>,
    /// The order of its reports; only the reporter looks at it.
    pub(crate) lane: Mutex<Lane>,
    life: Mutex<Life>,
    /// The lease moved or a stop was asked for.
    changed: Notify,
}

/// At most one report of a task is under way at a time; the others wait here.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) start: StartReport,
    pub(crate) is_busy: bool,
    pub(crate) waiting: VecDeque<Item>,
}

/// What has become of the report of the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StartReport {
    /// Not sent.
    #[default]
    Pending,
    /// Sent as a report of its own.
    Sent,
    /// Not needed: the outcome carries it.
    Merged,
    /// Not needed: the run began with its claim.
    Claimed,
}

struct Life {
    lease: Lease,
    begun_at: Option<Timestamp>,
    /// When the run began or the latest heartbeat was due, whichever is later.
    beaten_at: Instant,
    stop: Option<(StopReason, Instant)>,
    /// The outcome is decided, by the handler's return or before.
    is_over: bool,
}

impl Run {
    /// A task whose claim counts from `claimed` on.
    pub(crate) fn new(number: u64, task: Assignment, claimed: Instant, ctx: Arc<Ctx>) -> Self {
        let lease = Lease::claimed(&task, claimed, ctx.kill_grace);
        let lane = Lane {
            start: match task.started {
                true => StartReport::Claimed,
                false => StartReport::Pending,
            },
            ..Lane::default()
        };
        Self {
            number,
            begin_by: lease.begin_by(claimed),
            beat_interval: lease.beat_interval(),
            task,
            ctx,
            lane: Mutex::new(lane),
            life: Mutex::new(Life {
                lease,
                begun_at: None,
                beaten_at: claimed,
                stop: None,
                is_over: false,
            }),
            changed: Notify::new(),
        }
    }

    pub(crate) fn weight(&self) -> u32 {
        u32::from(self.task.weight.get())
    }

    pub(crate) fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handler begins.
    pub(crate) fn begin(&self) {
        let begun_at = self.ctx.clock.now();
        let mut life = self.life();
        life.begun_at = Some(begun_at);
        let now = Instant::now();
        // The lease of a run that began with its claim is older than this.
        if !self.task.started {
            life.beaten_at = now;
        }
        life.lease.begin(now);
    }

    /// When the handler began, by the wall clock.
    pub(crate) fn begun_at(&self) -> Option<Timestamp> {
        self.life().begun_at
    }

    /// Decides the outcome, once.
    pub(crate) fn end(&self) -> Result<(), ApiError> {
        let mut life = self.life();
        if let Some((StopReason::Lost, _)) = life.stop {
            return Err(lost());
        }
        if std::mem::replace(&mut life.is_over, true) {
            return Err(finished());
        }
        Ok(())
    }

    /// Whether the outcome is decided.
    pub(crate) fn is_over(&self) -> bool {
        self.life().is_over
    }

    /// When ownership ends for sure.
    pub(crate) fn lease_ends_at(&self) -> Instant {
        self.life().lease.ends_at()
    }

    /// Whether a heartbeat is of use now.
    pub(crate) fn wants_heartbeat(&self) -> bool {
        self.life().wants_heartbeat()
    }

    /// Whether to heartbeat now, which is also taken note of. Heartbeats come `usual`ly apart, or closer for a short
    /// lease; one that would be late at the next look, a `period` away, comes early.
    pub(crate) fn takes_heartbeat(&self, now: Instant, usual: Duration, period: Duration) -> bool {
        let mut life = self.life();
        let due_at = life.beaten_at + self.beat_interval.min(usual);
        let is_due = life.wants_heartbeat() && due_at < now + period;
        if is_due {
            life.beaten_at = now;
        }
        is_due
    }

    /// Changes what is known of the lease and wakes whoever waits for its end.
    pub(crate) fn update_lease(&self, change: impl FnOnce(&mut Lease)) {
        change(&mut self.life().lease);
        self.changed.notify_waiters();
    }

    /// A heartbeat was not answered.
    pub(crate) fn missed_heartbeat(&self) {
        if self.life().lease.missed() {
            self.stop(StopReason::Expired);
        }
    }

    /// Asks the run to stop. The first reason stays, but a lost task is lost whatever was said before.
    pub(crate) fn stop(&self, reason: StopReason) {
        let mut life = self.life();
        match &mut life.stop {
            None => life.stop = Some((reason, Instant::now())),
            Some((known, _)) if reason == StopReason::Lost => *known = reason,
            Some(_) => return,
        }
        drop(life);
        self.changed.notify_waiters();
    }

    /// Why the run must stop, if it must. A lease that has lapsed counts from that very moment.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        let mut life = self.life();
        life.look_at_clock();
        life.stop.map(|(reason, _)| reason)
    }

    /// Waits until the run must stop. Cancel safe.
    pub(crate) async fn stopped(&self) -> StopReason {
        self.wait_until(|life| match life.stop {
            Some((reason, _)) => Ok(reason),
            None => Err(life.wakes_at()),
        })
        .await
    }

    /// Waits until the run is no longer this worker's, or will not be in a moment. Cancel safe.
    pub(crate) async fn expired(&self) {
        self.wait_until(|life| match life.stop {
            Some((StopReason::Lost | StopReason::Expired | StopReason::Timeout, _)) => Ok(()),
            _ if life.lease.stop_at().0 <= Instant::now() => Ok(()),
            _ => Err(Some(life.lease.stop_at().0)),
        })
        .await;
    }

    /// Waits until a run that was told to stop has had its grace. Cancel safe.
    pub(crate) async fn grace_is_over(&self) {
        let grace = self.ctx.kill_grace;
        self.wait_until(|life| {
            let Some((reason, since)) = life.stop else {
                return Err(life.wakes_at());
            };
            let mut until = since + grace;
            // The run must not outlive its lease: the next one may begin then.
            if reason != StopReason::Lost && !life.is_over {
                until = until.min(life.lease.kill_at());
            }
            if until <= Instant::now() {
                Ok(())
            } else {
                Err(Some(until))
            }
        })
        .await;
    }

    /// Waits until `look` answers; until then it says when to look again at the latest.
    async fn wait_until<T>(&self, look: impl Fn(&Life) -> Result<T, Option<Instant>>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Listen before looking, or a change in between is missed.
            changed.as_mut().enable();
            let answer = {
                let mut life = self.life();
                if life.look_at_clock() {
                    self.changed.notify_waiters();
                }
                look(&life)
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

impl Life {
    /// Stops the run when its time is up; whether that is news.
    fn look_at_clock(&mut self) -> bool {
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

/// The task belongs to somebody else.
pub(crate) fn lost() -> ApiError {
    let message = "the task belongs to another worker now";
    ApiError::new(ErrorKind::Conflict, "lost", message)
}

/// The outcome is decided.
pub(crate) fn finished() -> ApiError {
    let message = "the run is finished";
    ApiError::new(ErrorKind::Conflict, "finished", message)
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

    /// A task of weight one with the default times.
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
            waited: Duration::ZERO,
        }
    }

    /// A run whose reports go nowhere.
    pub(crate) fn run(number: u8, task: Assignment) -> Arc<Run> {
        let (reports, _) = mpsc::channel(1);
        let (clock, kill_grace) = (Arc::new(NoClock), Duration::from_secs(5));
        let ctx = Arc::new(Ctx {
            reports,
            clock,
            kill_grace,
            groups: Groups::default(),
        });
        Arc::new(Run::new(u64::from(number), task, Instant::now(), ctx))
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reason_to_stop_stays_unless_the_task_is_lost() {
        let run = run(1, assignment(1));
        run.stop(StopReason::Cancelled);
        run.stop(StopReason::Shutdown);
        assert_eq!(run.stop_reason(), Some(StopReason::Cancelled));
        run.stop(StopReason::Lost);
        assert_eq!(run.stopped().await, StopReason::Lost);
        assert!(run.end().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn f_041_expiry_fires_in_time_and_a_heartbeat_pushes_it_back() {
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
            lease.start_kept(begun, begun, None);
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
