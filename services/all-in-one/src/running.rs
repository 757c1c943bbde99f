//! The running services and workers of a process, and their shutdown.

#[cfg(feature = "network")]
use std::net::SocketAddr;
use std::{sync::Arc, time::Duration};

use dueline_api::Controller;
use dueline_controller::ControllerService;
use dueline_executor::Executor;
use dueline_runtime::{ServiceError, Shutdown, SystemClock, SystemRng, TaskGroup};

use crate::{config::WorkerConfig, error::StartError};

/// How long calls in progress may take to end at shutdown. Only calls that wait for something take that long.
const CALLS_GRACE: Duration = Duration::from_secs(2);

/// The running services and workers of a process.
#[derive(Default)]
pub(crate) struct RunningServices {
    #[cfg(feature = "network")]
    pub(crate) address: Option<SocketAddr>,
    pub(crate) executors: Vec<Arc<Executor>>,
    pub(crate) services: TaskGroup,
    workers: TaskGroup,
    /// Stops the workers, before the services: the workers' last reports need the services.
    pub(crate) stop_workers: Shutdown,
    stop_services: Shutdown,
}

impl RunningServices {
    /// Runs a service until the workers have ended. A service that ends before its shutdown has failed.
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
            let what = "ended without a shutdown".into();
            Err(ServiceError { task: name, what })
        });
    }

    /// Starts a controller and its executors.
    pub(crate) fn controller(
        &mut self,
        controller: Arc<ControllerService>,
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

    /// Starts an executor that polls `controller`.
    pub(crate) fn worker(
        &mut self,
        worker: WorkerConfig,
        controller: Arc<dyn Controller>,
    ) -> Result<Arc<Executor>, StartError> {
        let deps = dueline_executor::Deps {
            controller,
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

    /// Waits until a service or worker has failed.
    pub(crate) async fn failed(&self) -> ServiceError {
        tokio::select! {
            biased;
            error = self.services.failed() => error,
            error = self.workers.failed() => error,
        }
    }

    /// Lets workers end within `grace`, then stops the services.
    pub(crate) async fn stop(&self, grace: Duration) -> Result<Drained, ServiceError> {
        let drained = async { drop(self.workers.wait().await) };
        let in_time = self.stop_workers.stop_gracefully(grace, drained).await;
        let workers = self.workers.wait().await;
        // A call whose write is durable but whose answer is dropped leaves a claim without an owner until its lease ends.
        let answered = async { drop(self.services.wait().await) };
        self.stop_services
            .stop_gracefully(CALLS_GRACE, answered)
            .await;
        let services = self.services.wait().await;
        let drained = if in_time {
            Drained::InTime
        } else {
            Drained::Abandoned
        };
        workers.and(services).map(|()| drained)
    }
}

/// Stops all tasks, so that a start that fails halfway leaves nothing running.
impl Drop for RunningServices {
    fn drop(&mut self) {
        self.stop_workers.stop_work();
        self.stop_services.stop_work();
    }
}

/// How runs ended when the workers stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All runs ended within the grace.
    InTime,
    /// Some runs did not end within the grace. Their tasks were abandoned and will run again.
    Abandoned,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_that_ends_before_its_shutdown_has_failed() {
        let running = RunningServices::default();
        running.service("lasting", async |stop: Shutdown| {
            stop.intake_stopped().await;
            Ok(())
        });
        running.service("short", async |_| Ok(()));
        let error = running.failed().await.to_string();
        assert!(
            error.contains("short") && error.contains("ended without a shutdown"),
            "{error}"
        );
        assert!(running.stop(Duration::from_secs(1)).await.is_err());
    }
}
