//! Systems that are wrong on purpose: the test of the tests. Each breaks one rule between the services and a store
//! or queue that is right; the checker must notice.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{
    Event, Job, JobName, Reason, Rejected, State, Task, TaskId, TaskRef, Timestamp, Token, WorkerId,
};
use dueline_ports::{
    Applied, Command, Create, Created, Delivery, Depth, DuePage, DueQuery, JobStats, JobStore,
    ListQuery, OwnedTask, Page, Pruned, PutJob, QueueError, Receipt, Starving, Store, StoreError,
    TaskQueue, TaskStore, WorkerRecord, WorkerStore, fakes::SeededRng,
};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The store does not look at tokens: whoever reports is believed.
    NoTokenCheck,
    /// Some submits are acknowledged and never stored.
    AckBeforeCommit,
    /// Messages are deleted when they are received.
    DeleteBeforeClaim,
    /// The watchdog moves whatever it finds, not what it saw, and does not look at the time.
    WatchdogWithoutCompare,
    /// Due tasks are read from where the last look ended.
    CursorPoll,
    /// A claim of a claimed task is granted too.
    SharedClaims,
}

/// A store seen through something wrong.
pub(crate) struct BadStore {
    inner: Arc<dyn Store>,
    bad: Bad,
    rng: SeededRng,
    cursor: Mutex<Timestamp>,
}

impl BadStore {
    pub(crate) fn new(inner: Arc<dyn Store>, bad: Bad, seed: u64) -> Self {
        let (rng, cursor) = (SeededRng::new(seed), Mutex::default());
        Self {
            inner,
            bad,
            rng,
            cursor,
        }
    }

    async fn apply_one(&self, now: Timestamp, command: Command) -> Result<Applied, StoreError> {
        let (job, id) = (command.job.clone(), command.id);
        let Some(task) = self.inner.get(&job, &id).await? else {
            return Err(StoreError::no_task(&id));
        };
        let (now, command) = match self.bad {
            Bad::NoTokenCheck => (now, with_present_token(command, &task)),
            Bad::WatchdogWithoutCompare => with_present_view(now, command, &task),
            _ => (now, command),
        };
        let claimed_with = match &command.event {
            Event::Claim(claim) => Some(claim.token),
            _ => None,
        };
        let answer = self.inner.apply(now, vec![command]).await.pop();
        match answer.unwrap_or(Err(StoreError::Throttled)) {
            Err(StoreError::Rejected(Rejected {
                reason: Reason::AlreadyClaimed,
                ..
            })) if self.bad == Bad::SharedClaims && task.state.token() == claimed_with => {
                Ok(Applied {
                    task: Box::new(task),
                    repeated: true,
                })
            }
            answer => answer,
        }
    }
}

/// The same event with the token that would be right.
fn with_present_token(mut command: Command, task: &Task) -> Command {
    let Some(held) = task.state.token() else {
        return command;
    };
    match &mut command.event {
        Event::Start { token }
        | Event::Heartbeat { token }
        | Event::Extend { token, .. }
        | Event::Checkpoint { token, .. }
        | Event::Finish { token, .. }
        | Event::Abandon { token, .. }
        | Event::Trash { token, .. } => *token = held,
        Event::Claim(claim) => claim.token = held,
        Event::OwnerLost(lost) => lost.token = held,
        _ => {}
    }
    command
}

/// The same trigger as if its sender had seen the task as it is, at a time when it is due.
fn with_present_view(now: Timestamp, mut command: Command, task: &Task) -> (Timestamp, Command) {
    let Event::Trigger(trigger) = &mut command.event else {
        return (now, command);
    };
    let Some(trigger_at) = task.state.trigger_at() else {
        return (now, command);
    };
    (trigger.seen, trigger.seen_at) = (task.kind(), trigger_at);
    // A renewal under the same token would hand the claim of one worker to another one; that is another fault.
    if !matches!(task.state, State::Enqueued { .. }) && task.state.token() == Some(trigger.token) {
        trigger.token = Token::from_random(trigger.token.get().wrapping_add(1));
    }
    (now.max(trigger_at), command)
}

#[async_trait]
impl TaskStore for BadStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let mut answers = Vec::new();
        for create in new {
            let forgets = self.bad == Bad::AckBeforeCommit && self.rng.below(10) == 0;
            if !forgets {
                answers.extend(self.inner.create(now, vec![create]).await);
                continue;
            }
            let job = self.inner.job(&create.task.job).await.ok().flatten();
            let policy = job.map(|job| job.policy.clone()).unwrap_or_default();
            let (token, write) = (create.token, create.write);
            let task = create
                .task
                .into_task(&policy, now, token, write, create.hand_on);
            answers.push(Ok(Created {
                task: Box::new(task),
                existed: false,
            }));
        }
        answers
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.inner.get(job, id).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let mut answers = Vec::new();
        for command in commands {
            answers.push(self.apply_one(now, command).await);
        }
        answers
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        let mut page = self.inner.due(query).await?;
        if self.bad == Bad::CursorPoll {
            let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            page.tasks.retain(|task| task.trigger_at > *cursor);
            let last = page.tasks.iter().map(|task| task.trigger_at).max();
            *cursor = last.unwrap_or(*cursor).max(*cursor);
        }
        Ok(page)
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.inner.ready(job, limit).await
    }

    async fn owned(&self, worker: Option<&WorkerId>) -> Result<Vec<OwnedTask>, StoreError> {
        self.inner.owned(worker).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        self.inner.stats(job).await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.inner.prune(now, limit).await
    }
}

#[async_trait]
impl JobStore for BadStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        self.inner.put_job(put).await
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        self.inner.job(name).await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        self.inner.jobs().await
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        self.inner.pause_job(name, paused, now).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        self.inner.delete_job(name).await
    }
}

#[async_trait]
impl WorkerStore for BadStore {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        self.inner.put_workers(workers).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.inner.workers().await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        self.inner.remove_workers(ids).await
    }
}

/// A queue whose user deletes what it receives at once.
pub(crate) struct HastyQueue(pub(crate) Arc<dyn TaskQueue>);

#[async_trait]
impl TaskQueue for HastyQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        self.0.ensure(job).await
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        self.0.remove(job).await
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        self.0.send(messages).await
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let got = self.0.receive(job, max, wait).await?;
        let receipts = got.iter().map(|delivery| delivery.receipt.clone());
        self.0.ack(receipts.collect()).await?;
        Ok(got)
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.0.ack(receipts).await
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.0.nack(receipts, delay).await
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.0.extend(receipts).await
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.0.depth(job).await
    }

    fn visibility_timeout(&self) -> Duration {
        self.0.visibility_timeout()
    }

    async fn starving(&self) -> Vec<Starving> {
        self.0.starving().await
    }

    fn refilled(&self, starving: &Starving, complete: bool) {
        self.0.refilled(starving, complete);
    }
}
