//! Layers around stores, for tests. A call that a layer does not implement goes to the store below.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_domain::{
    Job, JobName, Schedule, ScheduleName, Task, TaskAddress, TaskEnd, TaskId, TaskRef, Timestamp,
    WorkerId,
};

use crate::{
    Applied, ChangePage, ChangeQuery, Command, Create, Created, DuePage, DueQuery,
    DueSchedulesPage, DueSchedulesQuery, Edge, EdgePage, EdgeQuery, FamilyStore, JobStats,
    JobStore, LanePage, LaneQuery, ListQuery, OwnedTask, Page, Places, Pruned, PutJob, PutSchedule,
    QuotaSwap, QuotaWrite, ScheduleQuery, ScheduleStore, Store, StoreError, TakePlaces, TaskStore,
    WorkerRecord, WorkerStore,
};

/// A store that changes some calls of another store. A layer implements this trait instead of [`Store`], and only the
/// calls that differ.
#[async_trait]
#[expect(missing_docs, reason = "each method is documented in the seam")]
pub trait StoreLayer: Send + Sync + 'static {
    /// The store below.
    fn below(&self) -> &dyn Store;

    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        self.below().put_job(put).await
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        self.below().job(name).await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        self.below().jobs().await
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        self.below().pause_job(name, paused, now).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        self.below().delete_job(name).await
    }

    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        self.below().swap_quota(swap).await
    }

    async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError> {
        self.below().take_places(take).await
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        self.below().create(now, new).await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.below().get(job, id).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        self.below().apply(now, commands).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.below().due(query).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError> {
        self.below().lanes(query).await
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.below().ready(job, limit).await
    }

    async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        self.below().owned(now, worker).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        self.below().list(query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError> {
        self.below().changes(query).await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        self.below().stats(job).await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.below().prune(now, limit).await
    }

    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        self.below().put_schedules(puts).await
    }

    async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError> {
        self.below().schedule(job, name).await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        self.below().schedules(query).await
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        self.below().due_schedules(query).await
    }

    async fn delete_schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        self.below().delete_schedule(job, name).await
    }

    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        self.below().put_workers(workers).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.below().workers().await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        self.below().remove_workers(ids).await
    }

    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        self.below().put_edges(edges).await
    }

    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        self.below().edges(query).await
    }

    async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError> {
        self.below().end_edge(edge, end).await
    }

    async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError> {
        self.below().reopen_edge(edge).await
    }

    async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError> {
        self.below().open_children(parent, limit).await
    }
}

#[async_trait]
impl<T: StoreLayer> JobStore for T {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        StoreLayer::put_job(self, put).await
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        StoreLayer::job(self, name).await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        StoreLayer::jobs(self).await
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        StoreLayer::pause_job(self, name, paused, now).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        StoreLayer::delete_job(self, name).await
    }

    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        StoreLayer::swap_quota(self, swap).await
    }

    async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError> {
        StoreLayer::take_places(self, take).await
    }
}

#[async_trait]
impl<T: StoreLayer> TaskStore for T {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        StoreLayer::create(self, now, new).await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        StoreLayer::get(self, job, id).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        StoreLayer::apply(self, now, commands).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        StoreLayer::due(self, query).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError> {
        StoreLayer::lanes(self, query).await
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        StoreLayer::ready(self, job, limit).await
    }

    async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        StoreLayer::owned(self, now, worker).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        StoreLayer::list(self, query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError> {
        StoreLayer::changes(self, query).await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        StoreLayer::stats(self, job).await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        StoreLayer::prune(self, now, limit).await
    }
}

#[async_trait]
impl<T: StoreLayer> ScheduleStore for T {
    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        StoreLayer::put_schedules(self, puts).await
    }

    async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError> {
        StoreLayer::schedule(self, job, name).await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        StoreLayer::schedules(self, query).await
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        StoreLayer::due_schedules(self, query).await
    }

    async fn delete_schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        StoreLayer::delete_schedule(self, job, name).await
    }
}

#[async_trait]
impl<T: StoreLayer> WorkerStore for T {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        StoreLayer::put_workers(self, workers).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        StoreLayer::workers(self).await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        StoreLayer::remove_workers(self, ids).await
    }
}

#[async_trait]
impl<T: StoreLayer> FamilyStore for T {
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        StoreLayer::put_edges(self, edges).await
    }

    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        StoreLayer::edges(self, query).await
    }

    async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError> {
        StoreLayer::end_edge(self, edge, end).await
    }

    async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError> {
        StoreLayer::reopen_edge(self, edge).await
    }

    async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError> {
        StoreLayer::open_children(self, parent, limit).await
    }
}
