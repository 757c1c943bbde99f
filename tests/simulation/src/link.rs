//! The way from a controller to the status controllers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::{
    Alive, ApiError, Assignment, ErrorKind, Registration, Report, Reported, ServedJob, Status,
};
use dueline_domain::{TaskRef, WorkerId};
use dueline_runtime::TaskGroup;
use dueline_testkit::{HostGate, Site, Switch};
use tokio::{sync::oneshot, time::timeout};

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The status controllers that are up, by host.
#[derive(Clone, Default)]
pub(crate) struct Directory(Arc<Mutex<Vec<Option<Target>>>>);

#[derive(Clone)]
struct Target {
    gate: HostGate,
    /// While on, its health check fails, because it cannot reach its store.
    cut_off: Switch,
    status: Arc<dyn Status>,
}

impl Directory {
    /// A status controller came up as the one with this number.
    pub(crate) fn put(
        &self,
        number: usize,
        gate: HostGate,
        cut_off: Switch,
        status: Arc<dyn Status>,
    ) {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if targets.len() <= number {
            targets.resize(number + 1, None);
        }
        targets[number] = Some(Target {
            gate,
            cut_off,
            status,
        });
    }

    /// The next healthy one after `turn` changes.
    fn pick(&self, turn: usize) -> Option<Target> {
        let targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let up: Vec<&Target> = targets
            .iter()
            .flatten()
            .filter(|target| !target.gate.is_dead() && !target.cut_off.is_on())
            .collect();
        let number = turn % up.len().max(1);
        up.get(number).map(|target| (*target).clone())
    }
}

/// A client of all status controllers. A call that has left goes on although its caller gives up, dies or is paused;
/// its answer may be lost.
pub(crate) struct StatusLink {
    site: Site,
    targets: Directory,
    /// Goes up with each call that was not answered, so that the next one goes elsewhere.
    turn: AtomicUsize,
    /// Runs the calls on the other side.
    network: TaskGroup,
    /// Faults of each kind, in thousandths, and longest way in each direction.
    faults: u32,
    latency_max: Duration,
}

impl StatusLink {
    pub(crate) fn new(
        site: Site,
        targets: Directory,
        network: TaskGroup,
        faults: u32,
        latency_max: Duration,
    ) -> Self {
        Self {
            turn: AtomicUsize::new(site.rng.below(8) as usize),
            site,
            targets,
            network,
            faults,
            latency_max,
        }
    }

    async fn call<T, F>(&self, call: impl FnOnce(Arc<dyn Status>) -> F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let answer = self.try_call(call).await;
        if answer.is_err() {
            self.site.counters.count("status answered an error");
        }
        answer
    }

    async fn try_call<T, F>(&self, call: impl FnOnce(Arc<dyn Status>) -> F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.site.travel(self.latency_max).await;
        if self.site.is_out() {
            return Err(ApiError::unavailable("cut off"));
        }
        if self.site.roll("status call lost", self.faults) {
            return Err(ApiError::unavailable("no connection"));
        }
        let turn = self.turn.load(Ordering::Relaxed);
        let Some(target) = self.targets.pick(turn) else {
            return Err(ApiError::unavailable("no status controller is up"));
        };
        let (reply, answer) = oneshot::channel();
        let gate = target.gate.clone();
        let work = call(target.status);
        self.network.spawn_infallible("call", async move {
            tokio::select! {
                biased;
                () = gate.died() => {}
                answer = work => {
                    // The caller may have given up.
                    let _ = reply.send(answer);
                }
            }
        });
        let answer = timeout(PATIENCE, answer).await;
        self.site.travel(self.latency_max).await;
        if self.site.roll("status answer lost", self.faults) {
            return Err(deadline());
        }
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(ApiError::unavailable("connection lost")),
            Err(_) => {
                // Unless another call has turned away meanwhile.
                let (next, order) = (turn + 1, Ordering::Relaxed);
                let _ = self.turn.compare_exchange(turn, next, order, order);
                Err(deadline())
            }
        }
    }
}

fn deadline() -> ApiError {
    ApiError::new(ErrorKind::Deadline, "no_answer", "no answer in time")
}

/// The same error for each of `count` items.
fn for_each<T>(
    answer: Result<Vec<Result<T, ApiError>>, ApiError>,
    count: usize,
) -> Vec<Result<T, ApiError>> {
    answer.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
}

#[async_trait]
impl Status for StatusLink {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        let (worker, count) = (worker.clone(), messages.len());
        let call =
            |status: Arc<dyn Status>| async move { status.claim(&worker, messages, start).await };
        for_each(self.call(call).await, count)
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        let count = reports.len();
        let call = |status: Arc<dyn Status>| async move { status.report(reports).await };
        for_each(self.call(call).await, count)
    }

    async fn alive(&self, worker: Registration) -> Result<Alive, ApiError> {
        let call = |status: Arc<dyn Status>| async move { status.alive(worker).await };
        self.call(call).await.flatten()
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let worker = worker.clone();
        let call = |status: Arc<dyn Status>| async move { status.leave(&worker).await };
        self.call(call).await.flatten()
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        let call = |status: Arc<dyn Status>| async move { status.jobs().await };
        self.call(call).await.flatten()
    }
}
