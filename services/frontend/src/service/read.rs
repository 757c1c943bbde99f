//! Reads of one task, and of the workers.

use std::time::Duration;

use dueline_api::{
    ApiError, Call,
    operation::{GetRuns, GetScheduling, GetTask, ListWorkers, Scheduling, TaskRuns},
};
use dueline_domain::{Children, JobName, Task, TaskId};
use dueline_ports::{StoreError, WorkerRecord};
use tokio::time::Instant;

use super::{Inner, Serve};

/// When a wait reads the store again without a signal: the end may be reported to another process. At first
/// soon, then less and less often.
const READ_AGAIN: (Duration, Duration) = (Duration::from_millis(125), Duration::from_secs(1));

/// Most open children that are counted.
const OPEN_CHILDREN_MAX: usize = 1_000;

/// How long before the deadline of a call its wait ends.
const DEADLINE_MARGIN: Duration = Duration::from_millis(50);

impl Serve for GetTask {
    /// Cancel safe.
    async fn serve(self, inner: &Inner, call: &Call) -> Result<Task, ApiError> {
        let Self { job, id, wait } = self;
        let Some(wait) = wait else {
            return inner.task(&job, &id).await;
        };
        let until = end_of_wait(call, wait);
        // Subscribed before the first read, so that an end in between is not missed.
        let end = inner.deps.ended.subscribe(id);
        let mut read_again = READ_AGAIN.0;
        loop {
            let task = inner.task(&job, &id).await?;
            let now = Instant::now();
            if task.kind().is_final() || now >= until {
                return Ok(task);
            }
            tokio::select! {
                biased;
                () = end.signalled() => {}
                () = tokio::time::sleep_until(until.min(now + read_again)) => {}
            }
            read_again = (read_again * 2).min(READ_AGAIN.1);
        }
    }
}

/// When a wait ends: before the caller's deadline, because what is known then is worth more than an error after it.
pub(super) fn end_of_wait(call: &Call, wait: Duration) -> Instant {
    let until = Instant::now() + wait;
    let Some(deadline) = call.deadline else {
        return until;
    };
    let end = deadline.checked_sub(DEADLINE_MARGIN.min(wait));
    until.min(end.unwrap_or(deadline))
}

impl Serve for GetScheduling {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Scheduling, ApiError> {
        Ok(Scheduling::of(&inner.task(&self.job, &self.id).await?))
    }
}

impl Serve for GetRuns {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<TaskRuns, ApiError> {
        Ok(TaskRuns::of(&inner.task(&self.job, &self.id).await?))
    }
}

impl Serve for ListWorkers {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Vec<WorkerRecord>, ApiError> {
        let mut workers = inner.deps.store.workers().await?;
        if let Some(kind) = self.kind {
            workers.retain(|worker| &*worker.kind == kind.name());
        }
        Ok(workers)
    }
}

impl Inner {
    pub(super) async fn task(&self, job: &JobName, id: &TaskId) -> Result<Task, ApiError> {
        if let Some(task) = self.deps.store.get(job, id).await? {
            return Ok(self.with_open_children(task).await.without_secrets());
        }
        self.job(job).await?;
        Err(StoreError::no_task(id).into())
    }

    /// A task with the number of its children that have not ended, if it has any. Without the number when it cannot be read.
    async fn with_open_children(&self, mut task: Task) -> Task {
        let address = task.address();
        let options = task.options.as_deref_mut();
        if let Some(family) = options.and_then(|options| options.family.as_deref_mut())
            && family.children != Children::None
        {
            family.open_children = match family.children {
                Children::Closed => Some(0),
                _ => {
                    let open = self.deps.store.open_children(&address, OPEN_CHILDREN_MAX);
                    let open = open.await.ok().map(|open| open.len());
                    open.and_then(|open| u32::try_from(open).ok())
                }
            };
        }
        task
    }
}
