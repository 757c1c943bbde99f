//! A store that fails as real ones do.

mod due;
mod engine;
mod lagging;
mod others;
mod tasks;

use std::{collections::BTreeMap, sync::Arc, sync::Mutex, time::Duration};

use dueline_domain::JobName;
use dueline_ports::{Store, StoreError};

use self::due::Shown;
use crate::Site;

pub use self::{
    engine::{Engine, Hot},
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
    /// `TaskStore::stats`
    Stats,
    /// `TaskStore::prune`
    Prune,
    /// `WorkerStore::put_workers`
    PutWorkers,
    /// `WorkerStore::workers`
    Workers,
    /// `WorkerStore::remove_workers`
    RemoveWorkers,
}

/// How often what happens to a call, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreRates {
    /// Refused, nothing was done.
    pub unavailable: u32,
    /// Timed out, nothing was done; the caller cannot know that.
    pub timeout: u32,
    /// Refused for too many calls.
    pub throttled: u32,
    /// Done, and then reported as timed out.
    pub execute_and_timeout: u32,
    /// Done twice, as by a client that repeats on its own.
    pub execute_twice: u32,
    /// For each item of a batch: left out, with an error of its own.
    pub item_throttled: u32,
    /// Of a batch, a random part is done and the rest left out; each item has its own answer where there are any.
    pub partial: u32,
    /// For each item whose task another call is writing at the same moment: refused.
    pub conflict: u32,
    /// How long a write is at its task, at most: without this no two of them meet.
    pub busy_max: Duration,
    /// Longest way there, and longest way back.
    pub latency_max: Duration,
}

/// How an index lags behind its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueFaults {
    /// How often, in thousandths, a row that has moved is still shown.
    pub moved: u32,
    /// How often, in thousandths, a due row is not shown yet.
    pub late: u32,
    /// How often, in thousandths, a page comes back empty although there is more; and then up to three more.
    pub empty: u32,
    /// How often, in thousandths, a page ends early although there is more.
    pub short: u32,
}

/// What happens to the calls of one store.
#[derive(Clone, Debug, Default)]
pub struct StoreFaults {
    /// To methods not named below.
    pub rates: StoreRates,
    /// To these methods.
    pub by_method: BTreeMap<StoreMethod, StoreRates>,
    /// To pages of due tasks.
    pub due: DueFaults,
}

impl StoreFaults {
    fn of(&self, method: StoreMethod) -> StoreRates {
        self.by_method.get(&method).copied().unwrap_or(self.rates)
    }
}

/// A store behind a network: its calls are held back, delayed, refused, done without an answer, or done twice.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    site: Site,
    faults: StoreFaults,
    engine: Engine,
    shown: Mutex<Shown>,
}

/// What happens to one call.
enum Fate {
    Done,
    Refused(StoreError),
    DoneUnheard,
    DoneTwice,
}

impl FaultyStore {
    /// Puts a network between a host and its store.
    pub fn new(inner: Arc<dyn Store>, site: Site, faults: StoreFaults) -> Self {
        let (engine, shown) = (Engine::new(), Mutex::default());
        Self {
            inner,
            site,
            faults,
            engine,
            shown,
        }
    }

    /// The same store as one of several in front of one service.
    #[must_use]
    pub fn of(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// The way there, and what becomes of the call as a whole.
    async fn enter(&self, method: StoreMethod, items: usize) -> Fate {
        let rates = self.faults.of(method);
        self.site.travel(rates.latency_max).await;
        self.engine.asked(items);
        let roll = |name, per_mille| self.site.roll(name, per_mille);
        if self.is_hot(self.engine.heat_of_method(method)) {
            Fate::Refused(StoreError::Throttled)
        } else if self.site.is_out() {
            self.site.counters.count("store outage");
            Fate::Refused(unavailable("outage", false))
        } else if roll("store unavailable", rates.unavailable) {
            Fate::Refused(unavailable("refused", false))
        } else if roll("store timed out before", rates.timeout) {
            Fate::Refused(unavailable("timed out", true))
        } else if roll("store throttled", rates.throttled) {
            Fate::Refused(StoreError::Throttled)
        } else if roll("store timed out after", rates.execute_and_timeout) {
            Fate::DoneUnheard
        } else if roll("store executed twice", rates.execute_twice) {
            Fate::DoneTwice
        } else {
            Fate::Done
        }
    }

    async fn leave(&self, method: StoreMethod) {
        self.site.travel(self.faults.of(method).latency_max).await;
    }

    /// Whether something with this heat refuses now.
    fn is_hot(&self, per_mille: u32) -> bool {
        self.happens("store hot", per_mille)
    }

    /// As [`Site::roll`]. A fault that nobody asked for draws no number, so that it does not change what else happens.
    fn happens(&self, name: &'static str, per_mille: u32) -> bool {
        per_mille > 0 && self.site.roll(name, per_mille)
    }

    /// Takes note of an answer that says nothing about the task.
    fn count<T>(&self, answer: &Result<T, StoreError>) {
        if matches!(answer, Err(error) if error.is_retryable()) {
            self.site.counters.count("store answered an error");
        }
    }

    /// A call about a job, with one answer.
    async fn about<T, F: Future<Output = Result<T, StoreError>>>(
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
        self.one(method, call).await
    }

    /// A call with one answer.
    async fn one<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let answer = match self.enter(method, 1).await {
            Fate::Refused(error) => Err(error),
            Fate::Done => call().await,
            Fate::DoneUnheard => call().await.and(Err(unavailable("timed out", true))),
            Fate::DoneTwice => match call().await {
                Ok(_) => call().await,
                error => error,
            },
        };
        self.leave(method).await;
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
