//! How the process is.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_backends::OpenedStore;
use dueline_frontend::{Health, StoreConnection};
use dueline_runtime::{Shutdown, TaskGroup};

/// Healthy while no service has failed and nobody has asked the process to stop. A store that does not answer makes it
/// no less ready: calls are answered, with `unavailable`, and another process could do no better.
pub(crate) struct NodeHealth {
    pub(crate) services: TaskGroup,
    pub(crate) stopping: Shutdown,
    /// The store, where this process has one.
    pub(crate) store: Option<Arc<OpenedStore>>,
}

#[async_trait]
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

    async fn ready(&self) -> Result<(), String> {
        // Callers go elsewhere before the services end.
        if self.stopping.is_intake_stopped() {
            return Err("stopping".to_owned());
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
        };
        assert_eq!(health.ready().await, Ok(()));
        stopping.stop_intake();
        assert_eq!(health.ready().await, Err("stopping".to_owned()));
    }
}
