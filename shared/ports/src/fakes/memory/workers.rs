//! Worker records.

use async_trait::async_trait;
use dueline_domain::WorkerId;

use super::MemoryStore;
use crate::{StoreError, WorkerRecord, WorkerStore};

#[async_trait]
impl WorkerStore for MemoryStore {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        let named = workers
            .into_iter()
            .map(|record| (record.id.clone(), record));
        self.lock().workers.extend(named);
        Ok(())
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        Ok(self.lock().workers.values().cloned().collect())
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        let mut contents = self.lock();
        for id in ids {
            contents.workers.remove(&id);
        }
        Ok(())
    }
}
