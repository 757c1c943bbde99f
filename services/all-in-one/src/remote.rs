//! Workers and controllers whose server is elsewhere.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dueline_api::grpc::{self, Remote};
use dueline_controller::Controller;
use dueline_executor::Executor;
use dueline_ports::TaskQueue;
use dueline_runtime::ServiceError;

use crate::{
    config::WorkerConfig,
    error::StartError,
    running::{Drained, Port, Running},
};

/// An executor of this process that takes its work from a server or controller elsewhere.
pub struct RemoteWorker {
    executor: Arc<Executor>,
    running: Running,
}

impl RemoteWorker {
    /// Connects when it first asks for work, and whenever the connection was lost.
    pub fn start(server: &str, worker: WorkerConfig) -> Result<Self, StartError> {
        let remote = Remote::new(server).map_err(StartError::Server)?;
        let mut running = Running::default();
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

    /// Stops taking work, lets running work end within `grace`, gives the rest back.
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        self.running.stop(grace).await
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
    running: Running,
}

impl RemoteController {
    /// Starts the controller, its executors, and the port for further ones.
    pub async fn start(config: ControllerConfig) -> Result<Self, StartError> {
        let status = Remote::status_of(&config.servers).map_err(StartError::Server)?;
        let queue = open_queue(config.queue.as_deref(), &config.servers).await?;
        let port = Port::bind(config.listen).await?;
        let controller = Controller::new(
            config.controller,
            dueline_controller::Deps {
                queue,
                status: Arc::new(status),
                jobs_changed: Arc::default(),
            },
        );
        let mut running = Running::default();
        running.controller(controller.clone(), config.workers)?;
        if let Some(port) = port {
            let offered = grpc::Services {
                work: Some(controller),
                ..grpc::Services::default()
            };
            running.listen(port, offered, None, config.metrics);
        }
        Ok(Self { running })
    }

    /// Where executors find the controller.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.running.address
    }

    /// The executors of this process.
    pub fn executors(&self) -> &[Arc<Executor>] {
        &self.running.executors
    }

    /// Waits until a part has failed.
    pub async fn failed(&self) -> ServiceError {
        self.running.failed().await
    }

    /// As [`crate::Node::stop`].
    pub async fn stop(self, grace: Duration) -> Result<Drained, ServiceError> {
        self.running.stop(grace).await
    }
}

/// The queue that is named, or else the one inside the first server.
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
