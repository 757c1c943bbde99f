//! Workers and controllers that are connected to a server elsewhere.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dueline_api::{
    StatusController,
    grpc::{self, Remote},
};
use dueline_controller::ControllerService;
use dueline_executor::Executor;
use dueline_ports::TaskQueue;
use dueline_runtime::ServiceError;

use crate::{
    config::WorkerConfig,
    error::StartError,
    network::BoundPort,
    presence::register_controller,
    running::{Drained, RunningServices},
};

/// An executor of this process that polls a server or controller elsewhere.
pub struct RemoteWorker {
    executor: Arc<Executor>,
    running: RunningServices,
}

impl RemoteWorker {
    /// Starts the executor. It connects with its first call, and again whenever the connection is lost.
    pub fn start(server: &str, worker: WorkerConfig) -> Result<Self, StartError> {
        let remote = Remote::new(server).map_err(StartError::Server)?;
        let mut running = RunningServices::default();
        let executor = running.worker(worker, Arc::new(remote.work()))?;
        Ok(Self { executor, running })
    }

    /// The executor.
    pub const fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Waits until the executor has failed.
    pub async fn failed(&self) -> ServiceError {
        self.running.failed().await
    }

    /// Stops polling, lets runs end within `grace`, and stops and abandons the others.
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        self.running.stop(grace).await
    }
}

/// Settings of a process with a controller whose status controller is elsewhere.
pub struct ControllerConfig {
    /// Servers with a status controller. Any one of them is sufficient.
    pub servers: Vec<String>,
    /// The queue, as a URI; `None` for the queue within the first server.
    pub queue: Option<String>,
    /// Where the controller listens for executors; `None` when all executors are in this process.
    pub listen: Option<SocketAddr>,
    /// Settings of the controller.
    pub controller: dueline_controller::Config,
    /// Executors of this process.
    pub workers: Vec<WorkerConfig>,
    /// The response of `/metrics`.
    pub metrics: Option<dueline_frontend::MetricsText>,
}

/// A controller of this process with its executors, connected to a server elsewhere.
pub struct RemoteController {
    running: RunningServices,
}

impl RemoteController {
    /// Starts the controller, its executors, and the port for further executors.
    pub async fn start(config: ControllerConfig) -> Result<Self, StartError> {
        let status = Remote::status_of(&config.servers).map_err(StartError::Server)?;
        let status: Arc<dyn StatusController> = Arc::new(status);
        let queue = open_queue(config.queue.as_deref(), &config.servers).await?;
        let port = BoundPort::bind(config.listen).await?;
        let controller = ControllerService::new(
            config.controller,
            dueline_controller::Deps {
                queue,
                status: status.clone(),
                jobs_changed: Arc::default(),
            },
        );
        let mut running = RunningServices::default();
        running.service("presence", |stop| async move {
            register_controller(status, stop).await;
            Ok(())
        });
        running.controller(controller.clone(), config.workers)?;
        if let Some(port) = port {
            let services = grpc::Services {
                work: Some(controller),
                ..grpc::Services::default()
            };
            running.listen(port, services, None, config.metrics);
        }
        Ok(Self { running })
    }

    /// Where the controller listens for executors.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.running.address
    }

    /// The executors of this process.
    pub fn executors(&self) -> &[Arc<Executor>] {
        &self.running.executors
    }

    /// Waits until the controller or an executor has failed.
    pub async fn failed(&self) -> ServiceError {
        self.running.failed().await
    }

    /// As [`crate::Node::stop`].
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        self.running.stop(grace).await
    }
}

/// The configured queue, or else the one within the first server.
async fn open_queue(
    uri: Option<&str>,
    servers: &[String],
) -> Result<Arc<dyn TaskQueue>, StartError> {
    if let Some(uri) = uri {
        let opened = dueline_backends::open_queue(uri).await;
        return Ok(opened.map_err(StartError::Backend)?.queue);
    }
    let server = servers.first().ok_or(StartError::NoServer)?;
    let remote = Remote::new(server).map_err(StartError::Server)?;
    Ok(Arc::new(remote.queue()))
}
