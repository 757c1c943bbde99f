//! The calls about tasks. Batches fail as a whole or item by item.

use async_trait::async_trait;
use dueline_domain::{JobName, Task, TaskId, TaskRef, Timestamp, WorkerId};
use dueline_ports::{
    Applied, ChangePage, ChangeQuery, Command, Create, Created, DuePage, DueQuery, JobStats,
    LanePage, LaneQuery, ListQuery, OwnedTask, Page, Pruned, StoreError, TaskStore,
};

use super::{CallFault, FaultyStore, StoreMethod, unavailable};

/// An item of a batch.
trait BatchItem: Clone {
    fn job(&self) -> &JobName;
    fn id(&self) -> TaskId;
}

impl BatchItem for Create {
    fn job(&self) -> &JobName {
        &self.task.job
    }

    fn id(&self) -> TaskId {
        self.task.id
    }
}

impl BatchItem for Command {
    fn job(&self) -> &JobName {
        &self.job
    }

    fn id(&self) -> TaskId {
        self.id
    }
}

impl FaultyStore {
    /// A call with one result per item.
    async fn call_many<I: BatchItem, T, F: Future<Output = Vec<Result<T, StoreError>>>>(
        &self,
        method: StoreMethod,
        items: Vec<I>,
        call: impl Fn(Vec<I>) -> F,
    ) -> Vec<Result<T, StoreError>> {
        let fault = self.send_request(method, items.len()).await;
        let rates = self.faults.of(method);
        let left_out = |_: &I| {
            self.injector
                .roll("store item left out", rates.item_throttled)
        };
        let mut left_out: Vec<bool> = items.iter().map(left_out).collect();
        if let CallFault::Refuse(error) = fault {
            self.send_answer(method).await;
            return self.refuse(items.len(), &error);
        }
        self.leave_out_some(rates.partial, &mut left_out);
        let ids = items.iter().map(BatchItem::id).collect();
        let (writing, contested) = self.engine.begin_writes(ids);
        for (item, left_out) in items.iter().zip(&mut left_out) {
            let is_contested = contested.contains(&item.id());
            *left_out |= self.is_hot(self.engine.heat_of_job(item.job()))
                || is_contested && self.happens("store writes conflicted", rates.conflict);
        }
        if !rates.busy_max.is_zero() {
            // The request has arrived, so a crash of its sender no longer stops it.
            tokio::time::sleep(self.injector.random_duration(rates.busy_max)).await;
        }
        let sent = items.iter().zip(&left_out).filter(|(_, out)| !**out);
        let sent: Vec<I> = sent.map(|(item, _)| item.clone()).collect();
        let mut results = match fault {
            CallFault::Refuse(_) | CallFault::None => call(sent).await,
            CallFault::TimeOutAfter => {
                let results = call(sent).await.into_iter();
                results
                    .map(|result| result.and(Err(unavailable("timed out", true))))
                    .collect()
            }
            CallFault::ExecuteTwice => {
                call(sent.clone()).await;
                call(sent).await
            }
        }
        .into_iter();
        drop(writing);
        self.send_answer(method).await;
        let answers = left_out.into_iter().map(|left_out| {
            let answer = if left_out { None } else { results.next() };
            let answer = answer.unwrap_or(Err(StoreError::Throttled));
            self.count(&answer);
            answer
        });
        answers.collect()
    }

    fn refuse<T>(&self, items: usize, error: &StoreError) -> Vec<Result<T, StoreError>> {
        let answer = |_| {
            let answer = Err(error.clone());
            self.count(&answer);
            answer
        };
        (0..items).map(answer).collect()
    }

    /// Leaves out a random part of the batch, as a service that executes a batch in part.
    fn leave_out_some(&self, per_mille: u32, left_out: &mut [bool]) {
        if !self.happens("", per_mille) {
            return;
        }
        for left_out in left_out.iter_mut() {
            *left_out |= self.injector.roll("", 500);
        }
        if left_out.contains(&true) && left_out.contains(&false) {
            self.injector.counters.count("store batch done in part");
        }
    }
}

#[async_trait]
impl TaskStore for FaultyStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let call = |new| self.inner.create(now, new);
        self.call_many(StoreMethod::Create, new, call).await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.call_about(StoreMethod::Get, job, || self.inner.get(job, id))
            .await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let call = |commands| self.inner.apply(now, commands);
        self.call_many(StoreMethod::Apply, commands, call).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.count_share(query.share.as_ref());
        let call = || self.inner.due(query.clone());
        let mut page = self.call_one(StoreMethod::Due, call).await?;
        self.lag(&mut page);
        self.truncate(&mut page);
        Ok(page)
    }

    async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError> {
        let call = || self.inner.lanes(query.clone());
        self.call_one(StoreMethod::Lanes, call).await
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.call_about(StoreMethod::Ready, job, || self.inner.ready(job, limit))
            .await
    }

    async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        self.call_one(StoreMethod::Owned, || self.inner.owned(now, worker))
            .await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        let call = || self.inner.list(query.clone());
        self.call_about(StoreMethod::List, &query.job, call).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError> {
        let call = || self.inner.changes(query.clone());
        self.call_about(StoreMethod::Changes, &query.job, call)
            .await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        self.call_about(StoreMethod::Stats, job, || self.inner.stats(job))
            .await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.call_one(StoreMethod::Prune, || self.inner.prune(now, limit))
            .await
    }
}
