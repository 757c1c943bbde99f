//! The health of the process.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_api::Ready;
use dueline_backends::OpenedStore;
use dueline_executor::Executor;
use dueline_frontend::{Health, StoreConnection};
use dueline_runtime::{Shutdown, TaskGroup};

/// The process is ready while no service has failed, its own store accepts writes, and it is not stopping. A shared store
/// that does not answer does not change that: calls fail with `unavailable`, as they would in every other process.
pub(crate) struct NodeHealth {
    pub(crate) services: TaskGroup,
    pub(crate) stopping: Shutdown,
    /// The store, if this process has opened one.
    pub(crate) store: Option<Arc<OpenedStore>>,
    /// The executors of this process.
    pub(crate) executors: Vec<Arc<Executor>>,
}

impl Health for NodeHealth {
    fn durability(&self) -> Option<String> {
        let store = self.store.as_ref()?;
        Some(store.durability.to_owned())
    }

    fn store_connection(&self) -> Vec<StoreConnection> {
        let changes = self.store.as_ref().map(|store| store.connection());
        changes
            .unwrap_or_default()
            .into_iter()
            .map(|(is_up, ago)| StoreConnection { is_up, ago })
            .collect()
    }

    fn problems(&self) -> Vec<String> {
        let faults = self.executors.iter().filter_map(|it| it.host_fault());
        faults
            .map(|fault| format!("this host cannot run tasks now: {fault}"))
            .collect()
    }
}

#[async_trait]
impl Ready for NodeHealth {
    async fn ready(&self) -> Result<(), String> {
        // Not ready from the first stage on, so that callers turn to other processes before the services end.
        if self.stopping.is_intake_stopped() {
            return Err("stopping".to_owned());
        }
        let store = self.store.as_ref();
        if let Some(why) = store.and_then(|store| store.refuses_writes()) {
            return Err(format!("the store refuses writes: {why}"));
        }
        tokio::select! {
            biased;
            error = self.services.failed() => Err(error.to_string()),
            () = std::future::ready(()) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_stops_is_not_ready_from_the_first_stage_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let uri = format!("sqlite:{}", folder.path().join("t.db").display());
        let store = dueline_backends::open_store(&uri).await.expect("a store");
        let stopping = Shutdown::new();
        let health = NodeHealth {
            services: TaskGroup::new(),
            stopping: stopping.clone(),
            store: Some(Arc::new(store)),
            executors: Vec::new(),
        };
        assert_eq!(health.ready().await, Ok(()));
        stopping.stop_intake();
        assert_eq!(health.ready().await, Err("stopping".to_owned()));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_process_whose_file_was_deleted_is_not_ready() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        let store = dueline_backends::open_store(&format!("sqlite:{}", path.display())).await;
        let health = NodeHealth {
            services: TaskGroup::new(),
            stopping: Shutdown::new(),
            store: Some(Arc::new(store.expect("a store"))),
            executors: Vec::new(),
        };
        assert_eq!(health.ready().await, Ok(()));
        std::fs::remove_file(&path).expect("a file");
        let store = &health.store.as_ref().expect("a store").store;
        assert!(
            store
                .prune(dueline_domain::Timestamp::MAX, 1)
                .await
                .is_err()
        );
        let why = health.ready().await.expect_err("not ready");
        assert!(why.contains("deleted or replaced"), "{why}");
    }
}
