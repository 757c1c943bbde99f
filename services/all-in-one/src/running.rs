//! What every process has: services, workers, and a port where it listens.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dueline_api::{Work, grpc};
use dueline_backends::OpenedStore;
use dueline_controller::Controller;
use dueline_executor::Executor;
use dueline_frontend::{MetricsText, RestLimits, RouterDeps};
use dueline_runtime::{ServiceError, Shutdown, SystemClock, SystemRng, TaskGroup};
use tokio::net::TcpListener;

use crate::{config::WorkerConfig, error::StartError, health::NodeHealth};

/// Services and workers that run, and how they end.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) executors: Vec<Arc<Executor>>,
    services: TaskGroup,
    workers: TaskGroup,
    /// Ends workers first: what they report must still find its way into the store.
    stop_workers: Shutdown,
    stop_services: Shutdown,
}

impl Running {
    /// Runs a service until the workers have ended. One that ends before it is told to has failed.
    pub(crate) fn service<R>(&self, name: &'static str, run: impl FnOnce(Shutdown) -> R)
    where
        R: Future<Output = Result<(), ServiceError>> + Send + 'static,
    {
        let stop = self.stop_services.child();
        let run = run(stop.clone());
        self.services.spawn(name, async move {
            run.await?;
            if stop.is_intake_stopped() {
                return Ok(());
            }
            let what = "ended by itself".into();
            Err(ServiceError { task: name, what })
        });
    }

    /// Starts a controller and its executors.
    pub(crate) fn controller(
        &mut self,
        controller: Arc<Controller>,
        workers: Vec<WorkerConfig>,
    ) -> Result<(), StartError> {
        self.service("controller", |stop| {
            dueline_controller::run(controller.clone(), stop)
        });
        for worker in workers {
            self.worker(worker, controller.clone())?;
        }
        Ok(())
    }

    /// Starts an executor on whatever controller there is.
    pub(crate) fn worker(
        &mut self,
        worker: WorkerConfig,
        work: Arc<dyn Work>,
    ) -> Result<Arc<Executor>, StartError> {
        let deps = dueline_executor::Deps {
            work,
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            registry: worker.registry,
        };
        let executor = Executor::new(worker.executor, deps).map_err(StartError::Worker)?;
        let run = dueline_executor::run(executor.clone(), self.stop_workers.child());
        self.workers.spawn("executor", run);
        self.executors.push(executor.clone());
        Ok(executor)
    }

    /// Offers services on a port, by REST and gRPC.
    pub(crate) fn listen(
        &mut self,
        port: Port,
        offered: grpc::Services,
        store: Option<Arc<OpenedStore>>,
        metrics: Option<MetricsText>,
    ) {
        let rest = dueline_frontend::router(RouterDeps {
            frontend: offered.frontend.clone(),
            work: offered.work.clone(),
            health: Arc::new(NodeHealth {
                services: self.services.clone(),
                stopping: self.stop_workers.clone(),
                store,
            }),
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            metrics,
            limits: RestLimits::default(),
            default_policy: offered.default_policy.clone(),
        });
        let router = rest.merge(grpc::routes(offered).into_axum_router());
        self.address = Some(port.address);
        self.service("network", |stop| {
            dueline_frontend::serve(port.listener, router, stop)
        });
    }

    /// Waits until a service or worker has failed.
    pub(crate) async fn failed(&self) -> ServiceError {
        tokio::select! {
            biased;
            error = self.services.failed() => error,
            error = self.workers.failed() => error,
        }
    }

    /// Lets workers end within `grace`, then ends the services.
    pub(crate) async fn stop(&self, grace: Duration) -> Result<Drained, ServiceError> {
        let drained = async { drop(self.workers.wait().await) };
        let in_time = self.stop_workers.stop_gracefully(grace, drained).await;
        let workers = self.workers.wait().await;
        self.stop_services.stop_work();
        let services = self.services.wait().await;
        let drained = if in_time {
            Drained::InTime
        } else {
            Drained::GivenBack
        };
        workers.and(services).map(|()| drained)
    }
}

/// A start that fails halfway leaves nothing running.
impl Drop for Running {
    fn drop(&mut self) {
        self.stop_workers.stop_work();
        self.stop_services.stop_work();
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

/// A port that is ours.
pub(crate) struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    /// Takes the port, if one is wanted; nothing is answered there yet.
    pub(crate) async fn bind(wanted: Option<SocketAddr>) -> Result<Option<Self>, StartError> {
        let Some(address) = wanted else {
            return Ok(None);
        };
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, address }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_that_ends_before_it_is_told_to_has_failed() {
        let running = Running::default();
        running.service("lasting", async |stop: Shutdown| {
            stop.intake_stopped().await;
            Ok(())
        });
        running.service("short", async |_| Ok(()));
        let error = running.failed().await.to_string();
        assert!(
            error.contains("short") && error.contains("ended by itself"),
            "{error}"
        );
        assert!(running.stop(Duration::from_secs(1)).await.is_err());
    }
}
