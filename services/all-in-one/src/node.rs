//! A process that runs services on a store.

#[cfg(feature = "network")]
use std::net::SocketAddr;
use std::{sync::Arc, time::Duration};

#[cfg(feature = "network")]
use dueline_api::grpc;
use dueline_api::{Controller, Dispatch, Frontend, StatusController};
use dueline_backends::{OpenedQueue, OpenedStore, QueueAddress, SinkOptions, StoreAddress};
use dueline_controller::ControllerService;
use dueline_executor::Executor;
use dueline_frontend::{FrontendDeps, FrontendService};
use dueline_ports::{Clock, Cost, Rng, Sinks};
use dueline_runtime::{DueSignal, EndSignal, ServiceError, SystemClock, SystemRng};
use dueline_status_controller::StatusControllerService;
use tokio::sync::Notify;

#[cfg(feature = "network")]
use crate::network::BoundPort;
use crate::{
    config::{NodeConfig, Role},
    error::StartError,
    fleet,
    presence::Presence,
    running::{Drained, RunningServices},
};

/// A process's running services.
///
/// Call [`Node::stop`] for an orderly shutdown; dropping a node stops its services without waiting for them.
pub struct Node {
    running: RunningServices,
    frontend: Arc<FrontendService>,
    controller: Arc<dyn Controller>,
    store: Arc<OpenedStore>,
    queue: OpenedQueue,
    recovered: usize,
    /// The records of the services, if they are not renewed.
    presence: Option<Presence>,
}

impl Node {
    /// Opens the store and starts the services. Tasks that embedded workers of an earlier process on the same store own
    /// are reclaimed before any worker of this process polls.
    pub async fn start(mut config: NodeConfig) -> Result<Self, StartError> {
        check_queue(&config)?;
        let sinks = std::mem::take(&mut config.sinks);
        let deps = NodeDeps::open(&config.store, &config.queue, sinks).await?;
        if deps.store.is_shared() {
            fleet::adapt(&mut config);
        }
        #[cfg(feature = "network")]
        let port = BoundPort::bind(config.listen).await?;
        deps.create_queues().await?;

        let has = |role| config.roles.has(role);
        let status = StatusControllerService::new(config.status, deps.status());
        // On a shared store, embedded workers of other processes may be alive.
        let recovered = if !deps.store.is_shared() && has(Role::StatusController) {
            dueline_status_controller::recover(status.clone()).await
        } else {
            0
        };
        let controller = ControllerService::new(config.controller, deps.controller(status.clone()));
        let dispatch = (config.dispatch && has(Role::Controller))
            .then(|| controller.clone() as Arc<dyn Dispatch>);
        let frontend = Arc::new(FrontendService::new(deps.frontend(dispatch)));
        #[cfg(feature = "network")]
        let services = grpc::Services {
            frontend: has(Role::Frontend).then(|| frontend.clone() as Arc<dyn Frontend>),
            status: has(Role::StatusController)
                .then(|| status.clone() as Arc<dyn StatusController>),
            work: has(Role::Controller).then(|| controller.clone() as Arc<dyn Controller>),
            queue: has(Role::StatusController).then(|| deps.queue.queue.clone()),
            ready: None,
            default_policy: config.default_policy,
        };

        let mut running = RunningServices::default();
        let shared = deps.store.is_shared();
        let presence = Presence::of(&config.roles, shared, &*deps.clock);
        let presence = if shared {
            let (store, clock) = (deps.store.store.clone(), deps.clock.clone());
            running.service("presence", |stop| async move {
                presence.renew(store, clock, stop).await;
                Ok(())
            });
            None
        } else {
            presence.enter(&*deps.store.store).await;
            Some(presence)
        };
        if has(Role::StatusController) {
            running.service("status controller", |stop| {
                dueline_status_controller::run(status, stop)
            });
        }
        if has(Role::Consumer) {
            running.service("consumer", |stop| {
                dueline_consumer::run(config.consumer, deps.consumer(), stop)
            });
        }
        if has(Role::Controller) {
            running.controller(controller.clone(), config.workers)?;
        }
        #[cfg(feature = "network")]
        if let Some(port) = port {
            running.listen(port, services, Some(deps.store.clone()), config.metrics);
        }
        Ok(Self {
            running,
            frontend,
            controller,
            store: deps.store,
            queue: deps.queue,
            recovered,
            presence,
        })
    }

    /// Where REST and gRPC listen.
    #[cfg(feature = "network")]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.running.address
    }

    /// The frontend, called without a network.
    pub fn frontend(&self) -> Arc<dyn Frontend> {
        self.frontend.clone()
    }

    /// The controller, called without a network.
    pub fn controller(&self) -> Arc<dyn Controller> {
        self.controller.clone()
    }

    /// The executors of this process.
    pub fn executors(&self) -> &[Arc<Executor>] {
        &self.running.executors
    }

    /// A description of the failures that an acknowledged submit survives.
    pub fn durability(&self) -> &'static str {
        self.store.durability
    }

    /// Bytes of the store on this machine's disk.
    pub fn bytes_on_disk(&self) -> u64 {
        self.store.bytes_on_disk()
    }

    /// The cost of this process's billed calls.
    pub fn cost(&self) -> Cost {
        self.store.cost().plus(self.queue.cost())
    }

    /// How many tasks of an earlier process were reclaimed at the start.
    pub const fn recovered(&self) -> usize {
        self.recovered
    }

    /// Waits until a service has failed, or until the store accepts no more writes. The process should end then.
    pub async fn failed(&self) -> ServiceError {
        tokio::select! {
            biased;
            why = self.store.broken() => ServiceError {
                task: "store",
                what: format!("accepts no more writes until a restart: {why}"),
            },
            error = self.running.failed() => error,
        }
    }

    /// Stops in order: polling ends; runs may end within `grace`; the others are stopped and abandoned; then the
    /// services end and the store is closed.
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        let ended = self.running.stop(grace).await;
        self.frontend.drained().await;
        if let Some(presence) = &self.presence {
            presence.leave(&*self.store.store).await;
        }
        ended
    }
}

/// Checks that the messages of a local queue are received. Other processes cannot reach the queue. So on a shared store,
/// a process with a local queue must be the consumer, which sends, and also the controller, which receives, or the
/// status controller, which serves the queue to controllers elsewhere. On a store of its own the process may lack a
/// role: messages that it does not dispatch are sent again by the next process on the store.
fn check_queue(config: &NodeConfig) -> Result<(), StartError> {
    let store = StoreAddress::parse(&config.store).map_err(StartError::Backend)?;
    let queue = QueueAddress::parse(&config.queue).map_err(StartError::Backend)?;
    let has = |role| config.roles.has(role);
    let receives = has(Role::Controller) || has(Role::StatusController);
    if queue.is_shared() || !store.is_shared() || (has(Role::Consumer) && receives) {
        return Ok(());
    }
    Err(StartError::LocalQueue)
}

/// The dependencies that the services of one process share.
struct NodeDeps {
    store: Arc<OpenedStore>,
    queue: OpenedQueue,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    due: Arc<DueSignal>,
    ended: Arc<EndSignal>,
    sinks: Arc<dyn Sinks>,
    jobs_changed: Arc<Notify>,
}

impl NodeDeps {
    async fn open(store: &str, queue: &str, sinks: SinkOptions) -> Result<Self, StartError> {
        let store = dueline_backends::open_store(store).await;
        let store = store.map_err(StartError::Backend)?;
        let queue_uri = queue;
        let queue = dueline_backends::open_queue(queue_uri).await;
        let queue = queue.map_err(StartError::Backend)?;
        let sinks = dueline_backends::open_sinks(sinks, queue_uri, &queue).await;
        Ok(Self {
            store: Arc::new(store),
            sinks: Arc::new(sinks.map_err(StartError::Backend)?),
            queue,
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            due: Arc::default(),
            ended: Arc::default(),
            jobs_changed: Arc::default(),
        })
    }

    /// Creates the queue of each job before any message is sent. Shared queues are created on demand.
    async fn create_queues(&self) -> Result<(), StartError> {
        if self.queue.is_shared() {
            return Ok(());
        }
        for job in self.store.store.jobs().await.map_err(StartError::Store)? {
            let created = self.queue.queue.ensure(&job.name).await;
            created.map_err(StartError::Queue)?;
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

    fn controller(&self, status: Arc<dyn StatusController>) -> dueline_controller::Deps {
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
            ended: self.ended.clone(),
            sinks: self.sinks.clone(),
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
            sinks: self.sinks.clone(),
            jobs_changed: self.jobs_changed.clone(),
        }
    }
}
