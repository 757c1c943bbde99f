//! Workers and controllers whose server is elsewhere.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dueline_api::{
    Work,
    grpc::{self, Remote},
};
use dueline_controller::Controller;
use dueline_domain::Policy;
use dueline_executor::Executor;
use dueline_frontend::{RestLimits, RouterDeps};
use dueline_runtime::{ServiceError, Shutdown, SystemClock, SystemRng, TaskGroup};

use crate::{
    config::WorkerConfig,
    health::NodeHealth,
    node::{Drained, StartError, bind, start_worker},
};

/// An executor of this process that takes its work from a server or controller elsewhere.
pub struct RemoteWorker {
    executor: Arc<Executor>,
    tasks: TaskGroup,
    shutdown: Shutdown,
}

impl RemoteWorker {
    /// Connects when it first asks for work, and whenever the connection was lost.
    pub fn start(server: &str, worker: WorkerConfig) -> Result<Self, StartError> {
        let remote = Remote::new(server).map_err(StartError::Server)?;
        let (tasks, shutdown) = (TaskGroup::new(), Shutdown::new());
        let executor = start_worker(worker, Arc::new(remote.work()), &tasks, &shutdown)?;
        Ok(Self {
            executor,
            tasks,
            shutdown,
        })
    }

    /// The executor.
    pub const fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Waits until the executor has failed.
    pub async fn failed(&self) -> ServiceError {
        self.tasks.failed().await
    }

    /// Stops taking work, lets running work end within `grace`, gives the rest back.
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        let drained = async { drop(self.tasks.wait().await) };
        let in_time = self.shutdown.stop_gracefully(grace, drained).await;
        self.tasks.wait().await.map(|()| Drained::of(in_time))
    }
}

/// A controller on a host of its own.
pub struct ControllerConfig {
    /// Servers with a status controller, any of which will do.
    pub servers: Vec<String>,
    /// What carries tasks, as a URI; `None` for the queue inside the first server.
    pub queue: Option<String>,
    /// Where executors of this host find the controller; `None` when all of them are in this process.
    pub listen: Option<SocketAddr>,
    /// Its settings.
    pub controller: dueline_controller::Config,
    /// Executors of this process.
    pub workers: Vec<WorkerConfig>,
    /// Text of the metrics, for `/metrics`.
    pub metrics: Option<dueline_frontend::MetricsText>,
}

/// A controller of this process, with its executors, on a server elsewhere.
pub struct RemoteController {
    address: Option<SocketAddr>,
    executors: Vec<Arc<Executor>>,
    services: TaskGroup,
    workers: TaskGroup,
    stop_workers: Shutdown,
    stop_services: Shutdown,
}

impl RemoteController {
    /// Starts the controller, its executors, and the port for further ones.
    pub async fn start(config: ControllerConfig) -> Result<Self, StartError> {
        let status = Remote::status_of(&config.servers).map_err(StartError::Server)?;
        let queue = match &config.queue {
            Some(uri) => Some(
                dueline_backends::open_queue(uri)
                    .await
                    .map_err(StartError::Backend)?
                    .queue,
            ),
            None => None,
        };
        let queue = match (queue, config.servers.first()) {
            (Some(queue), _) => queue,
            (None, Some(server)) => {
                Arc::new(Remote::new(server).map_err(StartError::Server)?.queue())
            }
            (None, None) => return Err(StartError::NoServer),
        };
        let listener = match config.listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let controller = Controller::new(
            config.controller,
            dueline_controller::Deps {
                queue,
                status: Arc::new(status),
                jobs_changed: Arc::default(),
            },
        );
        let (services, workers) = (TaskGroup::new(), TaskGroup::new());
        let (stop_services, stop_workers) = (Shutdown::new(), Shutdown::new());
        let run = dueline_controller::run(controller.clone(), stop_services.child());
        services.spawn("controller", run);
        let mut executors = Vec::new();
        for worker in config.workers {
            executors.push(start_worker(
                worker,
                controller.clone(),
                &workers,
                &stop_workers,
            )?);
        }
        let address = listener.map(|(listener, address)| {
            let offered = grpc::Services {
                work: Some(controller as Arc<dyn Work>),
                ..grpc::Services::default()
            };
            let rest = dueline_frontend::router(RouterDeps {
                frontend: None,
                work: offered.work.clone(),
                health: Arc::new(NodeHealth {
                    services: services.clone(),
                    stopping: stop_workers.clone(),
                    store: None,
                }),
                clock: Arc::new(SystemClock),
                rng: Arc::new(SystemRng),
                metrics: config.metrics,
                limits: RestLimits::default(),
                default_policy: Policy::default(),
            });
            let router = rest.merge(grpc::routes(offered).into_axum_router());
            let serve = dueline_frontend::serve(listener, router, stop_services.child());
            services.spawn("network", serve);
            address
        });
        Ok(Self {
            address,
            executors,
            services,
            workers,
            stop_workers,
            stop_services,
        })
    }

    /// Where executors find the controller.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The executors of this process.
    pub fn executors(&self) -> &[Arc<Executor>] {
        &self.executors
    }

    /// Waits until a part has failed.
    pub async fn failed(&self) -> ServiceError {
        tokio::select! {
            biased;
            error = self.services.failed() => error,
            error = self.workers.failed() => error,
        }
    }

    /// As [`crate::Node::stop`].
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        let drained = async { drop(self.workers.wait().await) };
        let in_time = self.stop_workers.stop_gracefully(grace, drained).await;
        let workers = self.workers.wait().await;
        self.stop_services.stop_work();
        let services = self.services.wait().await;
        workers.and(services).map(|()| Drained::of(in_time))
    }
}
