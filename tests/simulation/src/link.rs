//! The simulated network between a controller and the status controllers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::{
    ApiError, Assignment, ErrorKind, ErrorReason, Registered, Registration, Report, ReportAck,
    ServedJob, StatusController,
};
use dueline_domain::{TaskRef, WorkerId};
use dueline_runtime::TaskGroup;
use dueline_testkit::{FaultInjector, HostGate, Switch};
use tokio::{sync::oneshot, time::timeout};

/// How long a call waits for its answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The status controllers that were started, by host number.
#[derive(Clone, Default)]
pub(crate) struct StatusDirectory(Arc<Mutex<Vec<Option<StatusEndpoint>>>>);

#[derive(Clone)]
struct StatusEndpoint {
    gate: HostGate,
    /// While on, the health check fails because the status controller cannot reach its store.
    cut_off: Switch,
    status: Arc<dyn StatusController>,
}

impl StatusDirectory {
    /// Registers the status controller that was started on the host with this number.
    pub(crate) fn put(
        &self,
        number: usize,
        gate: HostGate,
        cut_off: Switch,
        status: Arc<dyn StatusController>,
    ) {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if targets.len() <= number {
            targets.resize(number + 1, None);
        }
        targets[number] = Some(StatusEndpoint {
            gate,
            cut_off,
            status,
        });
    }

    /// The healthy status controller that is used after `turn` failovers.
    fn pick(&self, turn: usize) -> Option<StatusEndpoint> {
        let targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let up: Vec<&StatusEndpoint> = targets
            .iter()
            .flatten()
            .filter(|target| !target.gate.is_dead() && !target.cut_off.is_on())
            .collect();
        let number = turn % up.len().max(1);
        up.get(number).map(|target| (*target).clone())
    }
}

/// A client of all status controllers. A call that was sent is carried out even if its caller times out, dies or is
/// paused; its answer may be lost.
pub(crate) struct StatusLink {
    injector: FaultInjector,
    targets: StatusDirectory,
    /// Number of failovers: each call that timed out sends the next call to another status controller.
    turn: AtomicUsize,
    /// Runs the calls on the server side.
    network: TaskGroup,
    /// Rate of lost calls and of lost answers, in thousandths.
    faults: u32,
    /// Longest latency in each direction.
    latency_max: Duration,
}

impl StatusLink {
    pub(crate) fn new(
        injector: FaultInjector,
        targets: StatusDirectory,
        network: TaskGroup,
        faults: u32,
        latency_max: Duration,
    ) -> Self {
        Self {
            turn: AtomicUsize::new(injector.rng.below(8) as usize),
            injector,
            targets,
            network,
            faults,
            latency_max,
        }
    }

    async fn call<T, F>(
        &self,
        call: impl FnOnce(Arc<dyn StatusController>) -> F,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let answer = self.try_call(call).await;
        if answer.is_err() {
            self.injector.counters.count("status answered an error");
        }
        answer
    }

    async fn try_call<T, F>(
        &self,
        call: impl FnOnce(Arc<dyn StatusController>) -> F,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.injector.cross_network(self.latency_max).await;
        if self.injector.has_outage() {
            return Err(ApiError::unavailable("cut off"));
        }
        if self.injector.roll("status call lost", self.faults) {
            return Err(ApiError::unavailable("no connection"));
        }
        let turn = self.turn.load(Ordering::Relaxed);
        let Some(target) = self.targets.pick(turn) else {
            return Err(ApiError::unavailable("no status controller is up"));
        };
        let (reply, answer) = oneshot::channel();
        let gate = target.gate.clone();
        let handled = call(target.status);
        self.network.spawn_infallible("call", async move {
            tokio::select! {
                biased;
                () = gate.wait_until_dead() => {}
                answer = handled => {
                    // The caller may have timed out.
                    let _ = reply.send(answer);
                }
            }
        });
        let answer = timeout(CALL_TIMEOUT, answer).await;
        self.injector.cross_network(self.latency_max).await;
        if self.injector.roll("status answer lost", self.faults) {
            return Err(deadline());
        }
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(ApiError::unavailable("connection lost")),
            Err(_) => {
                // Unless another call has failed over meanwhile.
                let (next, order) = (turn + 1, Ordering::Relaxed);
                let _ = self.turn.compare_exchange(turn, next, order, order);
                Err(deadline())
            }
        }
    }
}

fn deadline() -> ApiError {
    ApiError::new(
        ErrorKind::Deadline,
        ErrorReason::NoAnswer,
        "no answer in time",
    )
}

/// The same error for each of `count` items.
fn for_each<T>(
    answer: Result<Vec<Result<T, ApiError>>, ApiError>,
    count: usize,
) -> Vec<Result<T, ApiError>> {
    answer.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
}

#[async_trait]
impl StatusController for StatusLink {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        let (worker, count) = (worker.clone(), messages.len());
        let call = |status: Arc<dyn StatusController>| async move {
            status.claim(&worker, messages, start).await
        };
        for_each(self.call(call).await, count)
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let count = reports.len();
        let call = |status: Arc<dyn StatusController>| async move { status.report(reports).await };
        for_each(self.call(call).await, count)
    }

    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        let call =
            |status: Arc<dyn StatusController>| async move { status.register_worker(worker).await };
        self.call(call).await.flatten()
    }

    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let worker = worker.clone();
        let call = |status: Arc<dyn StatusController>| async move {
            status.deregister_worker(&worker).await
        };
        self.call(call).await.flatten()
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        let call = |status: Arc<dyn StatusController>| async move { status.jobs().await };
        self.call(call).await.flatten()
    }
}
