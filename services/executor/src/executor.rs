//! The executor: its configuration and its state.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{Controller, Registration};
use dueline_ports::{Clock, Rng};
use dueline_runtime::TaskGroup;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use crate::{
    Config, ConfigError, Registry, StopReason,
    handlers::exec_groups::ProcessGroups,
    host_pause::HostPause,
    pool::SlotPool,
    run::{Run, RunContext, RunReport},
};

/// Capacity of the channel from the slots to the reporter. When it is full, slots wait.
const REPORTS_MAX: usize = 4_096;

/// Dependencies of an executor.
pub struct Deps {
    /// Where tasks come from and reports go.
    pub controller: Arc<dyn Controller>,
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

/// Polls for tasks and runs their handlers; see [`crate::run`].
pub struct Executor {
    pub(crate) config: Config,
    pub(crate) registration: Registration,
    pub(crate) controller: Arc<dyn Controller>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) registry: Registry,
    pub(crate) pool: SlotPool,
    pub(crate) context: Arc<RunContext>,
    pub(crate) host: HostPause,
    pub(crate) started: AtomicU64,
    pub(crate) tasks: TaskGroup,
    /// Signalled when a run needs heartbeats more often than all watched runs before it.
    pub(crate) heartbeat_sooner: Notify,
    pub(crate) finished: Arc<AtomicU64>,
    watched: Mutex<WatchedRuns>,
    inbox: Mutex<Option<mpsc::Receiver<RunReport>>>,
}

/// The runs whose handlers did not return at their first poll.
#[derive(Default)]
struct WatchedRuns {
    by_number: BTreeMap<u64, Arc<Run>>,
    /// Lower bound of the heartbeat intervals of all watched runs; `None` without runs.
    shortest_heartbeat: Option<Duration>,
    is_stopped: bool,
}

impl Executor {
    /// Checks the settings. The executor is idle until [`crate::run`].
    pub fn new(config: Config, deps: Deps) -> Result<Arc<Self>, ConfigError> {
        config.check()?;
        let (reports, inbox) = mpsc::channel(REPORTS_MAX);
        let registration = Registration {
            worker: config.worker()?,
            jobs: deps.registry.jobs(),
            handlers: deps.registry.kinds(),
            concurrency: config.concurrency,
            embedded: config.embedded,
            kind: dueline_ports::ProcessKind::Executor,
            metadata: dueline_ports::Metadata::new(),
        };
        let context = RunContext {
            reports,
            clock: deps.clock,
            kill_grace: config.kill_grace,
            groups: ProcessGroups::default(),
        };
        Ok(Arc::new(Self {
            pool: SlotPool::new(&config, Instant::now()),
            config,
            registration,
            controller: deps.controller,
            rng: deps.rng,
            registry: deps.registry,
            context: Arc::new(context),
            host: HostPause::default(),
            started: AtomicU64::new(0),
            tasks: TaskGroup::new(),
            heartbeat_sooner: Notify::new(),
            finished: Arc::default(),
            watched: Mutex::default(),
            inbox: Mutex::new(Some(inbox)),
        }))
    }

    /// The current numbers.
    pub fn counts(&self) -> Counts {
        Counts {
            started: self.started.load(Ordering::Relaxed),
            finished: self.finished.load(Ordering::Relaxed),
            running: u64::from(self.pool.running()),
        }
    }

    /// What this host lacks to run tasks: the error of the latest run that could not begin, until one has.
    pub fn host_fault(&self) -> Option<String> {
        self.host.error()
    }

    /// Kills all running commands with all processes they started, before it returns. For a process that is about to
    /// exit without waiting. No run begins after that, and the runs in progress get their stop signal. Returns how many
    /// commands were running.
    pub fn kill_all(&self) -> usize {
        self.pool.close();
        // Before the kill, so that a killed command counts as stopped, not as failed.
        self.stop_runs();
        self.context.groups.kill_all()
    }

    /// Adds a run whose handler did not return at its first poll, so that the run is heartbeaten and can be stopped.
    pub(crate) fn watch(&self, run: &Arc<Run>) {
        let interval = run.heartbeat_interval;
        let mut watched = self.lock_watched();
        watched.by_number.insert(run.number, run.clone());
        let shortest = watched.shortest_heartbeat;
        if shortest.is_none_or(|shortest| interval < shortest) {
            watched.shortest_heartbeat = Some(interval);
            self.heartbeat_sooner.notify_one();
        }
        if watched.is_stopped {
            run.stop(StopReason::Shutdown);
        }
    }

    /// The shortest heartbeat interval of the watched runs. May be too short until the next [`Executor::watched`].
    pub(crate) fn shortest_heartbeat(&self) -> Duration {
        let watched = self.lock_watched();
        watched.shortest_heartbeat.unwrap_or(Duration::MAX)
    }

    pub(crate) fn unwatch(&self, run: &Run) {
        self.lock_watched().by_number.remove(&run.number);
    }

    pub(crate) fn watched(&self) -> Vec<Arc<Run>> {
        let mut watched = self.lock_watched();
        let runs: Vec<_> = watched.by_number.values().cloned().collect();
        watched.shortest_heartbeat = runs.iter().map(|run| run.heartbeat_interval).min();
        runs
    }

    /// The reports for the reporter; `None` after the first call.
    pub(crate) fn take_inbox(&self) -> Option<mpsc::Receiver<RunReport>> {
        self.inbox.lock().ok()?.take()
    }

    pub(crate) fn stop_runs(&self) {
        let mut watched = self.lock_watched();
        watched.is_stopped = true;
        for run in watched.by_number.values() {
            run.stop(StopReason::Shutdown);
        }
    }

    fn lock_watched(&self) -> MutexGuard<'_, WatchedRuns> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
