//! Tasks: batches fail as a whole or item by item.

use async_trait::async_trait;
use dueline_domain::{JobName, Task, TaskId, TaskRef, Timestamp, WorkerId};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, JobStats, ListQuery, OwnedTask, Page,
    Pruned, StoreError, TaskStore,
};

use super::{Fate, FaultyStore, StoreMethod, unavailable};

impl FaultyStore {
    /// A call with an answer for each item.
    async fn many<I: Clone, T, F: Future<Output = Vec<Result<T, StoreError>>>>(
        &self,
        method: StoreMethod,
        items: Vec<I>,
        call: impl Fn(Vec<I>) -> F,
    ) -> Vec<Result<T, StoreError>> {
        let fate = self.enter(method).await;
        let rate = self.faults.of(method).item_throttled;
        let left_out = |_: &I| self.site.roll("store item left out", rate);
        let left_out: Vec<bool> = items.iter().map(left_out).collect();
        let sent = items.iter().zip(&left_out).filter(|(_, out)| !**out);
        let sent: Vec<I> = sent.map(|(item, _)| item.clone()).collect();
        let mut done = match fate {
            Fate::Refused(error) => {
                self.leave(method).await;
                return items.iter().map(|_| Err(error.clone())).collect();
            }
            Fate::Done => call(sent).await,
            Fate::DoneUnheard => {
                let done = call(sent).await.into_iter();
                done.map(|done| done.and(Err(unavailable("timed out", true))))
                    .collect()
            }
            Fate::DoneTwice => {
                call(sent.clone()).await;
                call(sent).await
            }
        }
        .into_iter();
        self.leave(method).await;
        let answers = left_out.into_iter().map(|left_out| {
            if left_out {
                return Err(StoreError::Throttled);
            }
            done.next().unwrap_or(Err(StoreError::Throttled))
        });
        answers.collect()
    }
}

#[async_trait]
impl TaskStore for FaultyStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let call = |new| self.inner.create(now, new);
        self.many(StoreMethod::Create, new, call).await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.one(StoreMethod::Get, || self.inner.get(job, id)).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let call = |commands| self.inner.apply(now, commands);
        self.many(StoreMethod::Apply, commands, call).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        let call = || self.inner.due(query.clone());
        let mut page = self.one(StoreMethod::Due, call).await?;
        self.lag(&mut page);
        Ok(page)
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.one(StoreMethod::Ready, || self.inner.ready(job, limit))
            .await
    }

    async fn owned(&self, worker: Option<&WorkerId>) -> Result<Vec<OwnedTask>, StoreError> {
        self.one(StoreMethod::Owned, || self.inner.owned(worker))
            .await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        self.one(StoreMethod::List, || self.inner.list(query.clone()))
            .await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        self.one(StoreMethod::Stats, || self.inner.stats(job)).await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.one(StoreMethod::Prune, || self.inner.prune(now, limit))
            .await
    }
}
