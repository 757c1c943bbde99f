//! A store that fails as real stores do.

mod due;
mod engine;
mod jobs_and_workers;
mod lagging;
mod schedule_index;
mod schedules;
mod tasks;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_domain::{JobName, Schedule, ScheduleName};
use dueline_ports::{Store, StoreError};

use self::due::EarlierDueReads;
use crate::FaultInjector;

pub use self::{
    engine::{HotSpot, StoreEngine},
    lagging::{IndexFaults, LaggingStore},
};

/// The methods of the store seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreMethod {
    /// `JobStore::put_job`
    PutJob,
    /// `JobStore::job`
    Job,
    /// `JobStore::jobs`
    Jobs,
    /// `JobStore::pause_job`
    PauseJob,
    /// `JobStore::delete_job`
    DeleteJob,
    /// `JobStore::swap_quota`
    SwapQuota,
    /// `JobStore::take_places`
    TakePlaces,
    /// `TaskStore::lanes`
    Lanes,
    /// `TaskStore::create`
    Create,
    /// `TaskStore::get`
    Get,
    /// `TaskStore::apply`
    Apply,
    /// `TaskStore::due`
    Due,
    /// `TaskStore::ready`
    Ready,
    /// `TaskStore::owned`
    Owned,
    /// `TaskStore::list`
    List,
    /// `TaskStore::changes`
    Changes,
    /// `TaskStore::stats`
    Stats,
    /// `TaskStore::prune`
    Prune,
    /// `ScheduleStore::put_schedules`
    PutSchedules,
    /// `ScheduleStore::schedule`
    Schedule,
    /// `ScheduleStore::schedules`
    Schedules,
    /// `ScheduleStore::due_schedules`
    DueSchedules,
    /// `ScheduleStore::delete_schedule`
    DeleteSchedule,
    /// `WorkerStore::put_workers`
    PutWorkers,
    /// `WorkerStore::workers`
    Workers,
    /// `WorkerStore::remove_workers`
    RemoveWorkers,
    /// `FamilyStore::put_edges`
    PutEdges,
    /// `FamilyStore::edges`
    Edges,
    /// `FamilyStore::end_edge`
    EndEdge,
    /// `FamilyStore::reopen_edge`
    ReopenEdge,
    /// `FamilyStore::open_children`
    OpenChildren,
}

/// Probabilities of the faults of a call, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreRates {
    /// The call is refused and has no effect.
    pub unavailable: u32,
    /// The call times out and has no effect, which the caller cannot know.
    pub timeout: u32,
    /// The call is throttled.
    pub throttled: u32,
    /// The call takes effect and then times out.
    pub execute_and_timeout: u32,
    /// The call is executed twice, as by a client that retries by itself.
    pub execute_twice: u32,
    /// A single item of a batch is throttled.
    pub item_throttled: u32,
    /// A random part of a batch is executed and the rest throttled. Each item has its own result, if the call has any.
    pub partial: u32,
    /// An item whose task another call is writing is refused.
    pub conflict: u32,
    /// Longest duration of a write. At zero, no two writes are concurrent.
    pub busy_max: Duration,
    /// Longest latency of a request, and of its response.
    pub latency_max: Duration,
}

/// Faults of an index that lags behind its table, as probabilities in thousandths. Schedules have those of single rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueFaults {
    /// A row that has moved is still returned.
    pub moved: u32,
    /// A due row is not returned yet.
    pub late: u32,
    /// A page is returned empty although tasks are due, and up to three following pages as well.
    pub empty: u32,
    /// A page ends early although more tasks are due.
    pub short: u32,
}

/// The faults of one store.
#[derive(Clone, Debug, Default)]
pub struct StoreFaults {
    /// Faults of all methods that `by_method` does not contain.
    pub rates: StoreRates,
    /// Faults of single methods.
    pub by_method: BTreeMap<StoreMethod, StoreRates>,
    /// Faults of pages of due tasks.
    pub due: DueFaults,
}

impl StoreFaults {
    fn of(&self, method: StoreMethod) -> StoreRates {
        self.by_method.get(&method).copied().unwrap_or(self.rates)
    }
}

/// A store behind a faulty network: its calls are delayed, refused, executed without an answer, or executed twice.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    injector: FaultInjector,
    faults: StoreFaults,
    engine: StoreEngine,
    earlier_due_reads: Mutex<EarlierDueReads>,
    /// The schedules as they were on earlier pages.
    earlier_schedules: Mutex<EarlierSchedules>,
}

type EarlierSchedules = BTreeMap<(JobName, ScheduleName), Schedule>;

/// The fault of one call, or none.
enum CallFault {
    None,
    Refuse(StoreError),
    TimeOutAfter,
    ExecuteTwice,
}

impl FaultyStore {
    /// A faulty network between a host and its store.
    pub fn new(inner: Arc<dyn Store>, injector: FaultInjector, faults: StoreFaults) -> Self {
        let (engine, earlier_due_reads) = (StoreEngine::new(), Mutex::default());
        Self {
            inner,
            injector,
            faults,
            engine,
            earlier_due_reads,
            earlier_schedules: Mutex::default(),
        }
    }

    fn earlier_schedules(&self) -> MutexGuard<'_, EarlierSchedules> {
        let earlier = &self.earlier_schedules;
        earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same store in front of `engine`, which several stores may share.
    #[must_use]
    pub fn with_engine(self, engine: StoreEngine) -> Self {
        Self { engine, ..self }
    }

    /// Sends a request over the network and decides about the fault of the call as a whole.
    async fn send_request(&self, method: StoreMethod, items: usize) -> CallFault {
        let rates = self.faults.of(method);
        self.injector.cross_network(rates.latency_max).await;
        self.engine.count_requests(items);
        let roll = |name, per_mille| self.injector.roll(name, per_mille);
        if self.is_hot(self.engine.heat_of_method(method)) {
            CallFault::Refuse(StoreError::Throttled)
        } else if self.injector.has_outage() {
            self.injector.counters.count("store outage");
            CallFault::Refuse(unavailable("outage", false))
        } else if roll("store unavailable", rates.unavailable) {
            CallFault::Refuse(unavailable("refused", false))
        } else if roll("store timed out before", rates.timeout) {
            CallFault::Refuse(unavailable("timed out", true))
        } else if roll("store throttled", rates.throttled) {
            CallFault::Refuse(StoreError::Throttled)
        } else if roll("store timed out after", rates.execute_and_timeout) {
            CallFault::TimeOutAfter
        } else if roll("store executed twice", rates.execute_twice) {
            CallFault::ExecuteTwice
        } else {
            CallFault::None
        }
    }

    /// Sends the answer over the network.
    async fn send_answer(&self, method: StoreMethod) {
        self.injector
            .cross_network(self.faults.of(method).latency_max)
            .await;
    }

    /// Decides whether a hot spot that throttles `per_mille` of its calls throttles this one.
    fn is_hot(&self, per_mille: u32) -> bool {
        self.happens("store hot", per_mille)
    }

    /// As [`FaultInjector::roll`], but without drawing a random number for a probability of zero. An unused fault thus
    /// does not change the decisions about other faults.
    fn happens(&self, name: &'static str, per_mille: u32) -> bool {
        per_mille > 0 && self.injector.roll(name, per_mille)
    }

    /// Counts an error that is not about the task.
    fn count<T>(&self, answer: &Result<T, StoreError>) {
        if matches!(answer, Err(error) if error.is_retryable()) {
            self.injector.counters.count("store answered an error");
        }
    }

    /// A call about a job, with one result.
    async fn call_about<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        method: StoreMethod,
        job: &JobName,
        call: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let call = || async {
            match self.is_hot(self.engine.heat_of_job(job)) {
                true => Err(StoreError::Throttled),
                false => call().await,
            }
        };
        self.call_one(method, call).await
    }

    /// A call with one result.
    async fn call_one<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let answer = match self.send_request(method, 1).await {
            CallFault::Refuse(error) => Err(error),
            CallFault::None => call().await,
            CallFault::TimeOutAfter => call().await.and(Err(unavailable("timed out", true))),
            CallFault::ExecuteTwice => match call().await {
                Ok(_) => call().await,
                error => error,
            },
        };
        self.send_answer(method).await;
        self.count(&answer);
        answer
    }
}

fn unavailable(message: &str, outcome_unknown: bool) -> StoreError {
    StoreError::Unavailable {
        message: message.into(),
        outcome_unknown,
    }
}
