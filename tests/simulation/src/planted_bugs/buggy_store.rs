//! A store with a planted bug.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_consumer::CONSUMER_KIND;
use dueline_domain::{
    Effect, Event, JobName, Owed, Reason, Rejected, Release, Settle, State, StateKind, Task,
    TaskId, Timestamp, Token, WorkerId,
};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, DueSchedulesPage, DueSchedulesQuery,
    DueTask, PutSchedule, Rng as _, Store, StoreError, WorkerRecord,
    fakes::{SeededRng, StoreLayer},
};

use super::{PlantedBug, schedules};

/// Retries of each throttled call under [`PlantedBug::RetryStorm`].
const STORM_RETRIES: usize = 10;

/// A correct store behind a layer that has one bug.
pub(crate) struct BuggyStore {
    inner: Arc<dyn Store>,
    bug: PlantedBug,
    rng: SeededRng,
    memory: Mutex<BuggyStoreMemory>,
}

/// State that the bug keeps between calls.
#[derive(Default)]
struct BuggyStoreMemory {
    cursor: Timestamp,
    /// Tasks that were on a page.
    paged: BTreeSet<TaskId>,
    members: BTreeMap<WorkerId, WorkerRecord>,
    /// Reads of the workers.
    reads: u64,
    /// Whether an empty page was read.
    ended: bool,
}

impl BuggyStore {
    pub(crate) fn new(inner: Arc<dyn Store>, bug: PlantedBug, seed: u64) -> Self {
        let (rng, memory) = (SeededRng::new(seed), Mutex::default());
        Self {
            inner,
            bug,
            rng,
            memory,
        }
    }

    fn memory(&self) -> MutexGuard<'_, BuggyStoreMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, bug: PlantedBug) -> bool {
        self.bug == bug
    }

    /// Calls once; under [`PlantedBug::RetryStorm`] again while the call is throttled.
    async fn call_and_retry<T, F: Future<Output = T>>(
        &self,
        call: impl Fn() -> F,
        is_throttled: impl Fn(&T) -> bool,
    ) -> T {
        let mut answer = call().await;
        for _ in 0..STORM_RETRIES {
            if !self.is(PlantedBug::RetryStorm) || !is_throttled(&answer) {
                break;
            }
            answer = call().await;
        }
        answer
    }

    /// Changes a page of due tasks as the bug does.
    fn change_page(&self, query: &DueQuery, page: &mut DuePage) {
        let mut memory = self.memory();
        match self.bug {
            PlantedBug::CursorPoll => {
                page.tasks.retain(|task| task.trigger_at > memory.cursor);
                let last = page.tasks.iter().map(|task| task.trigger_at).max();
                memory.cursor = last.unwrap_or(memory.cursor).max(memory.cursor);
            }
            PlantedBug::ForwardCursor => {
                let BuggyStoreMemory { cursor, paged, .. } = &mut *memory;
                page.tasks
                    .retain(|task| task.trigger_at > *cursor || paged.contains(&task.id));
                paged.extend(page.tasks.iter().map(|task| task.id));
                // The rest of a page that was full comes after the cursor.
                if !page.more {
                    *cursor = query.now.max(*cursor);
                }
            }
            PlantedBug::EmptyPageIsEnd => {
                memory.ended |= page.more && page.tasks.is_empty();
                if memory.ended {
                    *page = DuePage::default();
                }
            }
            _ => {}
        }
    }

    /// Settles what a task owes.
    async fn settle(&self, now: Timestamp, due: &DueTask) -> Result<(), StoreError> {
        let Some(task) = self.inner.get(&due.job, &due.id).await? else {
            return Ok(());
        };
        let command = Command {
            job: task.job,
            id: task.id,
            event: Event::Settle(Settle {
                seen: task.write,
                effect: Effect::Deliver,
                failed: None,
            }),
            write: self.rng.write_id(),
        };
        self.inner.apply(now, vec![command]).await;
        Ok(())
    }

    async fn apply_one(&self, now: Timestamp, command: Command) -> Result<Applied, StoreError> {
        let (job, id) = (command.job.clone(), command.id);
        let Some(task) = self.inner.get(&job, &id).await? else {
            return Err(StoreError::no_task(&id));
        };
        let (now, command) = match self.bug {
            PlantedBug::NoTokenCheck => (now, with_current_token(command, &task)),
            PlantedBug::WatchdogWithoutCompare => with_current_view(now, command, &task),
            PlantedBug::StagedCommittedOnFailure => (now, with_success(command)),
            PlantedBug::TrustsIndex if is_stale(&command, &task) => {
                with_current_view(now, command, &task)
            }
            _ => (now, command),
        };
        let claimed_with = match &command.event {
            Event::Claim(claim) => Some(claim.token),
            _ => None,
        };
        let counted = match self.bug {
            PlantedBug::CounterInsteadOfSet => with_next_predecessor(&command, &task),
            _ => None,
        };
        if let Some(counted) = counted {
            let answer = self.inner.apply(now, vec![counted]).await.pop();
            return answer.unwrap_or(Err(StoreError::Throttled));
        }
        let answer = self.inner.apply(now, vec![command]).await.pop();
        match answer.unwrap_or(Err(StoreError::Throttled)) {
            Err(StoreError::Rejected(Rejected {
                reason: Reason::AlreadyClaimed,
                ..
            })) if self.bug == PlantedBug::SharedClaims && task.state.token() == claimed_with => {
                Ok(Applied {
                    task: Box::new(task),
                    repeated: true,
                })
            }
            answer => answer,
        }
    }
}

/// The end of a run as a success.
fn with_success(mut command: Command) -> Command {
    if let Event::RunEnded(ended) = &mut command.event {
        ended.succeeded = true;
    }
    command
}

/// An end that the task knows already, as that of another predecessor.
fn with_next_predecessor(command: &Command, task: &Task) -> Option<Command> {
    let Event::Release(release) = &command.event else {
        return None;
    };
    let family = task.family()?;
    let is_known = family
        .after
        .iter()
        .any(|one| one.task == release.from && one.end.is_some());
    let next = family.after.iter().find(|one| one.end.is_none());
    let next = next.filter(|_| is_known)?;
    let mut command = command.clone();
    command.event = Event::Release(Release {
        from: next.task.clone(),
        ..release.clone()
    });
    Some(command)
}

/// The same event with the task's current token.
fn with_current_token(mut command: Command, task: &Task) -> Command {
    let Some(current) = task.state.token() else {
        return command;
    };
    match &mut command.event {
        Event::Start { token }
        | Event::Heartbeat { token }
        | Event::Extend { token, .. }
        | Event::Checkpoint { token, .. }
        | Event::Finish { token, .. }
        | Event::Abandon { token, .. }
        | Event::Trash { token, .. } => *token = current,
        Event::Claim(claim) => claim.token = current,
        Event::Reclaim(lost) => lost.token = current,
        _ => {}
    }
    command
}

/// The same trigger as if its sender had read the task's current state, at a time when the task is due.
fn with_current_view(now: Timestamp, mut command: Command, task: &Task) -> (Timestamp, Command) {
    let Event::Trigger(trigger) = &mut command.event else {
        return (now, command);
    };
    let Some(trigger_at) = task.state.trigger_at() else {
        return (now, command);
    };
    (trigger.seen, trigger.seen_at) = (task.kind(), trigger_at);
    // A trigger that keeps the token would let a second worker share the claim, which is a different bug.
    if !matches!(task.state, State::Enqueued { .. }) && task.state.token() == Some(trigger.token) {
        trigger.token = Token::from_random(trigger.token.get().wrapping_add(1));
    }
    (now.max(trigger_at), command)
}

/// Whether the sender read an index entry that is out of date.
fn is_stale(command: &Command, task: &Task) -> bool {
    match &command.event {
        Event::Trigger(trigger) => trigger.seen != task.kind(),
        _ => false,
    }
}

/// The answer of a create that never reached the store.
async fn invented_answer(store: &dyn Store, now: Timestamp, create: Create) -> Created {
    let job = store.job(&create.task.job).await.ok().flatten();
    let policy = job.map(|job| job.policy.clone()).unwrap_or_default();
    let (token, write) = (create.token, create.write);
    let task = create
        .task
        .into_task(&policy, now, token, write, create.may_enqueue);
    Created {
        task: Box::new(task),
        existed: false,
        replaced: false,
    }
}

fn is_throttled<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Throttled))
}

#[async_trait]
impl StoreLayer for BuggyStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let mut answers = Vec::new();
        for mut create in new {
            schedules::change_create(self.bug, &self.rng, &mut create);
            let is_dropped = self.is(PlantedBug::AckBeforeCommit) && self.rng.below(10) == 0;
            if is_dropped {
                answers.push(Ok(invented_answer(&*self.inner, now, create).await));
                continue;
            }
            let call = async || self.inner.create(now, vec![create.clone()]).await.pop();
            let throttled = |answer: &Option<_>| answer.as_ref().is_some_and(is_throttled);
            answers.extend(match self.call_and_retry(call, throttled).await {
                Some(Err(StoreError::Throttled)) if self.is(PlantedBug::PartialBatchIsComplete) => {
                    Some(Ok(invented_answer(&*self.inner, now, create).await))
                }
                answer => answer,
            });
        }
        answers
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        let call = || self.inner.get(job, id);
        let mut found = self.call_and_retry(call, is_throttled).await?;
        if self.is(PlantedBug::ReleaseBeforeCommit)
            && let Some(task) = found.as_mut()
            && task.kind() == StateKind::Processing
        {
            (task.state, task.finished_at) = (State::Succeeded, Some(task.changed_at));
        }
        if self.is(PlantedBug::DeliverBeforeCommit)
            && let Some(task) = found.as_mut()
            && task.kind() == StateKind::Processing
        {
            task.state = State::Succeeded;
            task.finished_at = Some(task.changed_at.after(Duration::from_millis(1)));
            task.owed = Some(Box::new(Owed {
                effects: vec![Effect::Deliver],
                trigger_at: task.changed_at,
                failures: 0,
                error: None,
            }));
        }
        Ok(found)
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        if self.is(PlantedBug::RetryStorm) {
            let call = || self.inner.apply(now, commands.clone());
            let throttled = |answers: &Vec<_>| answers.iter().any(is_throttled);
            return self.call_and_retry(call, throttled).await;
        }
        if self.bug.is_per_host() {
            return self.inner.apply(now, commands).await;
        }
        let mut answers = Vec::new();
        for command in commands {
            answers.push(self.apply_one(now, command).await);
        }
        answers
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        let call = || self.inner.due(query.clone());
        let mut page = self.call_and_retry(call, is_throttled).await?;
        self.change_page(&query, &mut page);
        if self.is(PlantedBug::SettleBeforeDelivery) {
            for due in &page.owed {
                self.settle(query.now, due).await?;
            }
        }
        if self.is(PlantedBug::DeliverBeforeCommit) {
            let running = self.inner.owned(query.now, None).await?;
            page.owed.extend(running.into_iter().map(|owned| DueTask {
                job: owned.job,
                id: owned.id,
                kind: StateKind::Succeeded,
                trigger_at: query.now,
            }));
        }
        Ok(page)
    }

    async fn put_schedules(&self, mut puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        for put in &mut puts {
            schedules::change_put(self.bug, &*self.inner, put).await;
        }
        self.inner.put_schedules(puts).await
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        let now = query.now;
        let mut page = self.inner.due_schedules(query).await?;
        schedules::change_due(self.bug, now, &mut page);
        Ok(page)
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        let mut records = self.inner.workers().await?;
        if self.is(PlantedBug::GhostMembers) {
            let mut memory = self.memory();
            let consumers = records.extract_if(.., |record| &*record.kind == CONSUMER_KIND);
            for record in consumers {
                memory.members.insert(record.id.clone(), record);
            }
            // Each member appears to have sent a heartbeat since the previous read.
            memory.reads += 1;
            let since = Duration::from_millis(memory.reads);
            records.extend(memory.members.values().map(|member| WorkerRecord {
                seen_at: member.seen_at.after(since),
                ..member.clone()
            }));
        }
        Ok(records)
    }
}
