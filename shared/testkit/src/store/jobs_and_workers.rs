//! The calls about jobs, workers and families.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_domain::{Job, JobName, TaskAddress, TaskEnd, Timestamp, WorkerId};
use dueline_ports::{
    Edge, EdgePage, EdgeQuery, FamilyStore, JobStore, Places, PutJob, QuotaSwap, QuotaWrite,
    StoreError, TakePlaces, WorkerRecord, WorkerStore,
};

use super::{FaultyStore, StoreMethod};

#[async_trait]
impl JobStore for FaultyStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        self.call_one(StoreMethod::PutJob, || self.inner.put_job(put.clone()))
            .await
    }

    // Definitions have partitions of their own, so the definition of a hot job is not hot.
    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        self.call_one(StoreMethod::Job, || self.inner.job(name))
            .await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        self.call_one(StoreMethod::Jobs, || self.inner.jobs()).await
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        let call = || self.inner.pause_job(name, paused, now);
        self.call_one(StoreMethod::PauseJob, call).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        self.call_one(StoreMethod::DeleteJob, || self.inner.delete_job(name))
            .await
    }

    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        let call = || self.inner.swap_quota(swap.clone());
        self.call_one(StoreMethod::SwapQuota, call).await
    }

    async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError> {
        let call = || self.inner.take_places(take.clone());
        self.call_one(StoreMethod::TakePlaces, call).await
    }
}

#[async_trait]
impl WorkerStore for FaultyStore {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        let rate = self.faults.of(StoreMethod::PutWorkers).partial;
        let is_partial = self.happens("workers stored in part", rate);
        let call = || async {
            if !is_partial {
                return self.inner.put_workers(workers.clone()).await;
            }
            let mut some = workers.clone();
            some.retain(|_| !self.injector.roll("", 500));
            self.inner.put_workers(some).await?;
            Err(StoreError::Throttled)
        };
        self.call_one(StoreMethod::PutWorkers, call).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.call_one(StoreMethod::Workers, || self.inner.workers())
            .await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        let call = || self.inner.remove_workers(ids.clone());
        self.call_one(StoreMethod::RemoveWorkers, call).await
    }
}

#[async_trait]
impl FamilyStore for FaultyStore {
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        let call = || self.inner.put_edges(edges.clone());
        self.call_one(StoreMethod::PutEdges, call).await
    }

    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        let call = || self.inner.edges(query.clone());
        self.call_one(StoreMethod::Edges, call).await
    }

    async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError> {
        let call = || self.inner.end_edge(edge.clone(), end);
        self.call_one(StoreMethod::EndEdge, call).await
    }

    async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError> {
        let call = || self.inner.reopen_edge(edge.clone());
        self.call_one(StoreMethod::ReopenEdge, call).await
    }

    async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError> {
        let call = || self.inner.open_children(parent, limit);
        self.call_one(StoreMethod::OpenChildren, call).await
    }
}
