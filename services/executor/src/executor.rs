//! The executor as a whole.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{Registration, Work};
use dueline_ports::{Clock, Rng};
use dueline_runtime::{ServiceError, Shutdown, TaskGroup};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Config, ConfigError, Registry, StopReason, beat, fetch,
    handlers::exec_groups::Groups,
    pool::Pool,
    reporter::{Inbox, Reporter},
    run::{Ctx, Run},
    runner,
};

/// Reports between slots and the reporter. When it is full, slots wait.
const REPORTS_MAX: usize = 4_096;
/// How long the last reports and the farewell may take once work must stop.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// What an executor needs from outside.
pub struct Deps {
    /// Where tasks come from and reports go.
    pub work: Arc<dyn Work>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Handlers.
    pub registry: Registry,
}

/// Numbers of one executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs that have begun.
    pub started: u64,
    /// Runs whose outcome is durable.
    pub finished: u64,
    /// Runs in progress.
    pub running: u64,
}

/// Takes tasks and runs their handlers; see [`run`].
pub struct Executor {
    pub(crate) config: Config,
    pub(crate) registration: Registration,
    pub(crate) work: Arc<dyn Work>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) registry: Registry,
    pub(crate) pool: Pool,
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) started: AtomicU64,
    pub(crate) tasks: TaskGroup,
    /// Told when a run needs heartbeats more often than those watched before.
    pub(crate) beat_sooner: Notify,
    finished: Arc<AtomicU64>,
    /// Runs that did not end at once, by number.
    watched: Mutex<Watched>,
    inbox: Mutex<Option<mpsc::Receiver<crate::reporter::Item>>>,
}

#[derive(Default)]
struct Watched {
    runs: BTreeMap<u64, Arc<Run>>,
    /// No run needs heartbeats more often than this; `None` without any.
    shortest_beat: Option<Duration>,
    is_stopped: bool,
}

impl Executor {
    /// Checks the settings. Nothing happens before [`run`].
    pub fn new(config: Config, deps: Deps) -> Result<Arc<Self>, ConfigError> {
        config.check()?;
        let (reports, inbox) = mpsc::channel(REPORTS_MAX);
        let registration = Registration {
            worker: config.worker()?,
            jobs: deps.registry.jobs(),
            handlers: deps.registry.kinds(),
            concurrency: config.concurrency,
            embedded: config.embedded,
        };
        let ctx = Ctx {
            reports,
            clock: deps.clock,
            kill_grace: config.kill_grace,
            groups: Groups::default(),
        };
        Ok(Arc::new(Self {
            pool: Pool::new(&config, Instant::now()),
            config,
            registration,
            work: deps.work,
            rng: deps.rng,
            registry: deps.registry,
            ctx: Arc::new(ctx),
            started: AtomicU64::new(0),
            tasks: TaskGroup::new(),
            beat_sooner: Notify::new(),
            finished: Arc::default(),
            watched: Mutex::default(),
            inbox: Mutex::new(Some(inbox)),
        }))
    }

    /// Numbers at this moment.
    pub fn counts(&self) -> Counts {
        Counts {
            started: self.started.load(Ordering::Relaxed),
            finished: self.finished.load(Ordering::Relaxed),
            running: u64::from(self.pool.running()),
        }
    }

    /// Kills the commands that run, with all that they started, before it returns: for a process that is about to exit
    /// without waiting for anything. No run begins after that, and those in progress are told to stop. Returns how many
    /// commands there were.
    pub fn kill_all(&self) -> usize {
        self.pool.close();
        // First, so that a command that was killed is not taken for one that failed.
        self.stop_runs();
        self.ctx.groups.kill_all()
    }

    /// Keeps an eye on a run that takes longer than one poll.
    pub(crate) fn watch(&self, run: &Arc<Run>) {
        let beat = run.beat_interval;
        let mut watched = self.lock_watched();
        watched.runs.insert(run.number, run.clone());
        if watched.shortest_beat.is_none_or(|shortest| beat < shortest) {
            watched.shortest_beat = Some(beat);
            self.beat_sooner.notify_one();
        }
        if watched.is_stopped {
            run.stop(StopReason::Shutdown);
        }
    }

    /// How often the watched runs need a look at least. May be too often until the next [`Executor::watched`].
    pub(crate) fn shortest_beat(&self) -> Duration {
        self.lock_watched().shortest_beat.unwrap_or(Duration::MAX)
    }

    pub(crate) fn unwatch(&self, run: &Run) {
        self.lock_watched().runs.remove(&run.number);
    }

    pub(crate) fn watched(&self) -> Vec<Arc<Run>> {
        let mut watched = self.lock_watched();
        let runs: Vec<_> = watched.runs.values().cloned().collect();
        watched.shortest_beat = runs.iter().map(|run| run.beat_interval).min();
        runs
    }

    fn stop_runs(&self) {
        let mut watched = self.lock_watched();
        watched.is_stopped = true;
        for run in watched.runs.values() {
            run.stop(StopReason::Shutdown);
        }
    }

    fn lock_watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the executor until it is told to stop and everything it ran is reported, or until a part of it fails.
///
/// The first stage of `shutdown` stops taking work and gives back what has not begun. The second one stops the runs;
/// those that have not ended after the kill grace are dropped and given back. When the future itself is dropped, both
/// stages happen at once, behind the caller's back.
pub async fn run(executor: Arc<Executor>, shutdown: Shutdown) -> Result<(), ServiceError> {
    let inbox = executor.inbox.lock().ok().and_then(|mut it| it.take());
    let Some(items) = inbox else {
        return Err(failure("was run twice"));
    };
    let shutdown = shutdown.child();
    let _stop = StopOnDrop(shutdown.clone(), executor.clone());
    let (beats_tx, beats) = mpsc::channel(4);
    let (flush, reported) = (CancellationToken::new(), CancellationToken::new());
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    let _flush = flush.clone().drop_guard();

    let tasks = &executor.tasks;
    let reporter = Reporter::new(
        executor.work.clone(),
        executor.rng.clone(),
        executor.finished.clone(),
        Inbox { items, beats },
    );
    tasks.spawn_infallible("reporter", {
        let (flush, end, is_done) = (flush.clone(), end.clone(), reported.clone().drop_guard());
        async move {
            tokio::select! {
                biased;
                () = reporter.run(flush) => {}
                () = end.cancelled() => {}
            }
            drop::<DropGuard>(is_done);
        }
    });
    let (interval_tx, mut interval) = watch::channel(None);
    tasks.spawn_infallible(
        "registration",
        beat::register(executor.clone(), interval_tx, end.clone()),
    );
    tasks.spawn_infallible(
        "heartbeats",
        beat::heartbeat(executor.clone(), beats_tx, interval.clone(), end.clone()),
    );
    let ended = serve(&executor, &shutdown, &mut interval).await;
    if ended.is_err() {
        shutdown.stop_work();
        executor.stop_runs();
    }
    flush.cancel();
    if ended.is_ok() {
        finish_reports(&shutdown, &reported).await;
    }
    end.cancel();
    leave(&executor).await;
    let stopped = tokio::time::timeout(FAREWELL_MAX, tasks.wait()).await;
    ended?;
    stopped.unwrap_or(Ok(()))
}

/// Takes work and runs it until shutdown, and then until nothing runs.
async fn serve(
    executor: &Arc<Executor>,
    shutdown: &Shutdown,
    interval: &mut watch::Receiver<Option<Duration>>,
) -> Result<(), ServiceError> {
    let work = async {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => {}
            // Whoever is not registered must not own anything.
            () = async { drop(interval.wait_for(Option::is_some).await) } => {
                fetch::fetch(executor.clone(), shutdown.clone()).await;
            }
        }
        let unused = executor.pool.close();
        runner::give_back(executor, unused).await;
        executor.pool.idle().await;
    };
    let stop = async {
        shutdown.work_stopped().await;
        executor.stop_runs();
        tokio::time::sleep(executor.config.kill_grace + FAREWELL_MAX).await;
    };
    tokio::select! {
        biased;
        error = executor.tasks.failed() => Err(error),
        () = work => Ok(()),
        () = stop => Err(failure(
            "did not come to rest: handlers block their threads, or reports cannot be handed over",
        )),
    }
}

/// Waits until the last reports are durable, for as long as there is time.
async fn finish_reports(shutdown: &Shutdown, reported: &CancellationToken) {
    let too_late = async {
        shutdown.work_stopped().await;
        tokio::time::sleep(FAREWELL_MAX).await;
    };
    tokio::select! {
        biased;
        () = reported.cancelled() => {}
        () = too_late => tracing::warn!("the last reports are not durable; their tasks will run again"),
    }
}

async fn leave(executor: &Executor) {
    let leaving = executor.work.leave(&executor.registration.worker);
    match tokio::time::timeout(FAREWELL_MAX, leaving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "failed to leave; leases will lapse instead"),
        Err(_) => tracing::warn!("failed to leave in time; leases will lapse instead"),
    }
}

fn failure(what: &str) -> ServiceError {
    ServiceError {
        task: "executor",
        what: what.to_owned(),
    }
}

/// A dropped executor must not leave handlers running.
struct StopOnDrop(Shutdown, Arc<Executor>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop_work();
        self.1.pool.close();
        self.1.stop_runs();
    }
}
