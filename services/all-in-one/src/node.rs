//! Services on a store, in one process.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dueline_api::{Dispatch, Frontend, Status, Work, grpc};
use dueline_backends::{OpenedQueue, OpenedStore, QueueAddress, StoreAddress};
use dueline_controller::Controller;
use dueline_executor::Executor;
use dueline_frontend::{FrontendDeps, FrontendService};
use dueline_ports::{Clock, Cost, Rng};
use dueline_runtime::{DueSignal, EndSignal, ServiceError, SystemClock, SystemRng};
use dueline_status_controller::StatusController;
use tokio::sync::Notify;

use crate::{
    config::{NodeConfig, Role},
    error::StartError,
    fleet,
    running::{Drained, Port, Running},
};

/// Running services.
///
/// Dropping it ends nothing in an orderly way; call [`Node::stop`].
pub struct Node {
    running: Running,
    frontend: Arc<FrontendService>,
    work: Arc<dyn Work>,
    store: Arc<OpenedStore>,
    queue: OpenedQueue,
    recovered: usize,
}

impl Node {
    /// Opens the store and starts the services. What the workers of an earlier process on the same store had in hand
    /// is handed on again before any worker of this one asks for work.
    pub async fn start(mut config: NodeConfig) -> Result<Self, StartError> {
        check_queue(&config)?;
        let parts = Parts::open(&config.store, &config.queue).await?;
        if parts.store.is_shared() {
            fleet::adapt(&mut config);
        }
        let port = Port::bind(config.listen).await?;
        parts.make_queues().await?;

        let has = |role| config.roles.has(role);
        let status = StatusController::new(config.status, parts.status());
        // Only the owner of a store may conclude that workers it does not know are dead.
        let recovered = if !parts.store.is_shared() && has(Role::StatusController) {
            dueline_status_controller::recover(status.clone()).await
        } else {
            0
        };
        let controller = Controller::new(config.controller, parts.controller(status.clone()));
        let dispatch = (config.dispatch && has(Role::Controller))
            .then(|| controller.clone() as Arc<dyn Dispatch>);
        let frontend = Arc::new(FrontendService::new(parts.frontend(dispatch)));
        let offered = grpc::Services {
            frontend: has(Role::Frontend).then(|| frontend.clone() as Arc<dyn Frontend>),
            status: has(Role::StatusController).then(|| status.clone() as Arc<dyn Status>),
            work: has(Role::Controller).then(|| controller.clone() as Arc<dyn Work>),
            queue: has(Role::StatusController).then(|| parts.queue.queue.clone()),
            default_policy: config.default_policy,
        };

        let mut running = Running::default();
        if has(Role::StatusController) {
            running.service("status controller", |stop| {
                dueline_status_controller::run(status, stop)
            });
        }
        if has(Role::Consumer) {
            running.service("consumer", |stop| {
                dueline_consumer::run(config.consumer, parts.consumer(), stop)
            });
        }
        if has(Role::Controller) {
            running.controller(controller.clone(), config.workers)?;
        }
        if let Some(port) = port {
            running.listen(port, offered, Some(parts.store.clone()), config.metrics);
        }
        Ok(Self {
            running,
            frontend,
            work: controller,
            store: parts.store,
            queue: parts.queue,
            recovered,
        })
    }

    /// Where REST and gRPC listen.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.running.address
    }

    /// The frontend, without a network in between.
    pub fn frontend(&self) -> Arc<dyn Frontend> {
        self.frontend.clone()
    }

    /// The controller, without a network in between.
    pub fn work(&self) -> Arc<dyn Work> {
        self.work.clone()
    }

    /// The executors of this process.
    pub fn executors(&self) -> &[Arc<Executor>] {
        &self.running.executors
    }

    /// What an acknowledged submit survives, as text for people.
    pub fn durability(&self) -> &'static str {
        self.store.durability
    }

    /// Bytes of the store on this machine's disk.
    pub fn bytes_on_disk(&self) -> u64 {
        self.store.bytes_on_disk()
    }

    /// What this process has spent on calls that are billed.
    pub fn cost(&self) -> Cost {
        self.store.cost().plus(self.queue.cost())
    }

    /// How many tasks of an earlier process were handed on again at the start.
    pub const fn recovered(&self) -> usize {
        self.recovered
    }

    /// Waits until a service has failed, or the store cannot be written any more. The process should end then.
    pub async fn failed(&self) -> ServiceError {
        tokio::select! {
            biased;
            () = self.store.broken() => ServiceError {
                task: "store",
                what: "cannot be written any more".into(),
            },
            error = self.running.failed() => error,
        }
    }

    /// Stops in order: no new work is taken; running work may end within `grace`; the rest is given back; then the
    /// services end and the store is closed.
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        let ended = self.running.stop(grace).await;
        self.frontend.drained().await;
        ended
    }
}

/// Messages in the memory of a process reach only those who ask that very process. One of several on a store would keep
/// them from the others, unless it finds what is due and hands it out itself. On a store of its own nothing is kept
/// from anybody: what this process sends to nobody, the next one finds.
fn check_queue(config: &NodeConfig) -> Result<(), StartError> {
    let store = StoreAddress::parse(&config.store).map_err(StartError::Backend)?;
    let queue = QueueAddress::parse(&config.queue).map_err(StartError::Backend)?;
    let has = |role| config.roles.has(role);
    let hands_out = has(Role::Controller) || has(Role::StatusController);
    if queue.is_shared() || !store.is_shared() || (has(Role::Consumer) && hands_out) {
        return Ok(());
    }
    Err(StartError::LocalQueue)
}

/// What the services of one process share.
struct Parts {
    store: Arc<OpenedStore>,
    queue: OpenedQueue,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    due: Arc<DueSignal>,
    ended: Arc<EndSignal>,
    jobs_changed: Arc<Notify>,
}

impl Parts {
    async fn open(store: &str, queue: &str) -> Result<Self, StartError> {
        let store = dueline_backends::open_store(store).await;
        let store = store.map_err(StartError::Backend)?;
        let queue = dueline_backends::open_queue(queue).await;
        Ok(Self {
            store: Arc::new(store),
            queue: queue.map_err(StartError::Backend)?,
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            due: Arc::default(),
            ended: Arc::default(),
            jobs_changed: Arc::default(),
        })
    }

    /// Every job of the store has its queue before anything is sent to one. Queues that others use too are made as they
    /// are needed.
    async fn make_queues(&self) -> Result<(), StartError> {
        if self.queue.is_shared() {
            return Ok(());
        }
        for job in self.store.store.jobs().await.map_err(StartError::Store)? {
            let made = self.queue.queue.ensure(&job.name).await;
            made.map_err(StartError::Queue)?;
        }
        Ok(())
    }

    fn status(&self) -> dueline_status_controller::Deps {
        dueline_status_controller::Deps {
            store: self.store.store.clone(),
            queue: self.queue.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: self.due.clone(),
            ended: self.ended.clone(),
        }
    }

    fn controller(&self, status: Arc<dyn Status>) -> dueline_controller::Deps {
        dueline_controller::Deps {
            queue: self.queue.queue.clone(),
            status,
            jobs_changed: self.jobs_changed.clone(),
        }
    }

    fn consumer(&self) -> dueline_consumer::Deps {
        dueline_consumer::Deps {
            store: self.store.store.clone(),
            queue: self.queue.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: self.due.clone(),
        }
    }

    fn frontend(&self, dispatch: Option<Arc<dyn Dispatch>>) -> FrontendDeps {
        FrontendDeps {
            dispatch,
            store: self.store.store.clone(),
            queue: self.queue.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: self.due.clone(),
            ended: self.ended.clone(),
            jobs_changed: self.jobs_changed.clone(),
        }
    }
}
