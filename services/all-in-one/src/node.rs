//! Services on a store, in one process.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dueline_api::{Dispatch, Frontend, Status, Work, grpc};
use dueline_backends::{BackendError, OpenedQueue, OpenedStore};
use dueline_controller::Controller;
use dueline_executor::Executor;
use dueline_frontend::{FrontendDeps, FrontendService, RestLimits, RouterDeps};
use dueline_ports::{Clock, Cost, QueueError, Rng, StoreError, TaskQueue};
use dueline_runtime::{
    DueSignal, EndSignal, ServiceError, Shutdown, SystemClock, SystemRng, TaskGroup,
};
use dueline_status_controller::StatusController;
use tokio::{net::TcpListener, sync::Notify};

use crate::{
    config::{NodeConfig, Role, WorkerConfig},
    fleet,
    health::NodeHealth,
};

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store or queue cannot be opened.
    #[error("failed to open the backend")]
    Backend(#[source] BackendError),
    /// The store does not answer.
    #[error("failed to read the jobs")]
    Store(#[source] StoreError),
    /// A job's queue cannot be made.
    #[error("failed to make the queues")]
    Queue(#[source] QueueError),
    /// The address is taken or not ours.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The worker's settings cannot work.
    #[error("failed to set up a worker")]
    Worker(#[source] dueline_executor::ConfigError),
    /// No server was named.
    #[error("failed to set up the connection to the server: none is named")]
    NoServer,
    /// The address of the server is wrong.
    #[error("failed to set up the connection to the server")]
    Server(#[source] dueline_api::ApiError),
}

/// Running services.
///
/// Dropping it ends nothing in an orderly way; call [`Node::stop`].
pub struct Node {
    address: Option<SocketAddr>,
    frontend: Arc<FrontendService>,
    work: Arc<dyn Work>,
    executors: Vec<Arc<Executor>>,
    store: Arc<OpenedStore>,
    queue: OpenedQueue,
    services: TaskGroup,
    workers: TaskGroup,
    /// Ends workers first: what they report must still find its way into the store.
    stop_workers: Shutdown,
    stop_services: Shutdown,
    recovered: usize,
}

impl Node {
    /// Opens the store and starts the services. What the workers of an earlier process on the same store had in hand
    /// is handed on again before any worker of this one asks for work.
    pub async fn start(config: NodeConfig) -> Result<Self, StartError> {
        let store = dueline_backends::open_store(&config.store).await;
        let store = store.map_err(StartError::Backend)?;
        let queue = dueline_backends::open_queue(&config.queue).await;
        let queue = queue.map_err(StartError::Backend)?;
        let mut config = config;
        if store.is_shared() {
            fleet::adapt(&mut config);
        }
        let store = Arc::new(store);
        let listener = match config.listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let parts = Parts::new(&store, queue.queue.clone());
        if !queue.is_shared() {
            parts.make_queues().await?;
        }

        let status = StatusController::new(config.status, parts.status());
        // Only the owner of a store may conclude that workers it does not know are dead.
        let is_owner = !store.is_shared() && config.roles.has(Role::StatusController);
        let recovered = if is_owner {
            dueline_status_controller::recover(status.clone()).await
        } else {
            0
        };
        let controller = Controller::new(
            config.controller,
            dueline_controller::Deps {
                queue: parts.queue.clone(),
                status: status.clone(),
                jobs_changed: parts.jobs_changed.clone(),
            },
        );
        let dispatch = (config.dispatch && config.roles.has(Role::Controller))
            .then(|| controller.clone() as Arc<dyn Dispatch>);
        let frontend = Arc::new(FrontendService::new(parts.frontend(dispatch)));

        let (services, workers) = (TaskGroup::new(), TaskGroup::new());
        let (stop_services, stop_workers) = (Shutdown::new(), Shutdown::new());
        if config.roles.has(Role::StatusController) {
            let run = dueline_status_controller::run(status.clone(), stop_services.child());
            services.spawn("status controller", run);
        }
        if config.roles.has(Role::Consumer) {
            let run =
                dueline_consumer::run(config.consumer, parts.consumer(), stop_services.child());
            services.spawn("consumer", run);
        }
        let mut executors = Vec::new();
        if config.roles.has(Role::Controller) {
            let run = dueline_controller::run(controller.clone(), stop_services.child());
            services.spawn("controller", run);
            for worker in config.workers {
                executors.push(start_worker(
                    worker,
                    controller.clone(),
                    &workers,
                    &stop_workers,
                )?);
            }
        }
        let address = match listener {
            Some((listener, address)) => {
                let has = |role| config.roles.has(role);
                let offered = grpc::Services {
                    frontend: has(Role::Frontend).then(|| frontend.clone() as Arc<dyn Frontend>),
                    status: has(Role::StatusController).then(|| status.clone() as Arc<dyn Status>),
                    work: has(Role::Controller).then(|| controller.clone() as Arc<dyn Work>),
                    queue: has(Role::StatusController).then(|| parts.queue.clone()),
                    default_policy: config.default_policy.clone(),
                };
                let rest = dueline_frontend::router(RouterDeps {
                    frontend: offered.frontend.clone(),
                    work: offered.work.clone(),
                    health: Arc::new(NodeHealth {
                        services: services.clone(),
                        stopping: stop_workers.clone(),
                        store: Some(store.clone()),
                    }),
                    clock: parts.clock.clone(),
                    rng: parts.rng.clone(),
                    metrics: config.metrics,
                    limits: RestLimits::default(),
                    default_policy: config.default_policy,
                });
                let router = rest.merge(grpc::routes(offered).into_axum_router());
                let serve = dueline_frontend::serve(listener, router, stop_services.child());
                services.spawn("network", serve);
                Some(address)
            }
            None => None,
        };
        Ok(Self {
            address,
            frontend,
            work: controller,
            executors,
            store,
            queue,
            services,
            workers,
            stop_workers,
            stop_services,
            recovered,
        })
    }

    /// Where REST and gRPC listen.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
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
        &self.executors
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
            error = self.services.failed() => error,
            error = self.workers.failed() => error,
        }
    }

    /// Stops in order: no new work is taken; running work may end within `grace`; the rest is given back; then the
    /// services end and the store is closed.
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        let drained = async { drop(self.workers.wait().await) };
        let in_time = self.stop_workers.stop_gracefully(grace, drained).await;
        let workers = self.workers.wait().await;
        self.stop_services.stop_work();
        let services = self.services.wait().await;
        self.frontend.drained().await;
        workers.and(services).map(|()| Drained::of(in_time))
    }
}

/// What became of running tasks when workers stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All of them ended by themselves.
    InTime,
    /// Some did not within the grace; they were given back and run again elsewhere, or later.
    GivenBack,
}

impl Drained {
    pub(crate) const fn of(in_time: bool) -> Self {
        if in_time {
            Self::InTime
        } else {
            Self::GivenBack
        }
    }
}

/// What the services of one process share.
struct Parts {
    store: Arc<dyn dueline_ports::Store>,
    queue: Arc<dyn TaskQueue>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    due: Arc<DueSignal>,
    ended: Arc<EndSignal>,
    jobs_changed: Arc<Notify>,
}

impl Parts {
    fn new(store: &OpenedStore, queue: Arc<dyn TaskQueue>) -> Self {
        Self {
            store: store.store.clone(),
            queue,
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            due: Arc::default(),
            ended: Arc::default(),
            jobs_changed: Arc::default(),
        }
    }

    /// Every job of the store has its queue before anything is sent to one.
    async fn make_queues(&self) -> Result<(), StartError> {
        for job in self.store.jobs().await.map_err(StartError::Store)? {
            let made = self.queue.ensure(&job.name).await;
            made.map_err(StartError::Queue)?;
        }
        Ok(())
    }

    fn status(&self) -> dueline_status_controller::Deps {
        dueline_status_controller::Deps {
            store: self.store.clone(),
            queue: self.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: self.due.clone(),
            ended: self.ended.clone(),
        }
    }

    fn consumer(&self) -> dueline_consumer::Deps {
        dueline_consumer::Deps {
            store: self.store.clone(),
            queue: self.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: self.due.clone(),
        }
    }

    fn frontend(&self, dispatch: Option<Arc<dyn Dispatch>>) -> FrontendDeps {
        FrontendDeps {
            dispatch,
            store: self.store.clone(),
            queue: self.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: self.due.clone(),
            ended: self.ended.clone(),
            jobs_changed: self.jobs_changed.clone(),
        }
    }
}

pub(crate) async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Starts an executor on whatever controller there is.
pub(crate) fn start_worker(
    worker: WorkerConfig,
    work: Arc<dyn Work>,
    group: &TaskGroup,
    shutdown: &Shutdown,
) -> Result<Arc<Executor>, StartError> {
    let executor = Executor::new(
        worker.executor,
        dueline_executor::Deps {
            work,
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            registry: worker.registry,
        },
    )
    .map_err(StartError::Worker)?;
    let run = dueline_executor::run(executor.clone(), shutdown.child());
    group.spawn("executor", run);
    Ok(executor)
}
