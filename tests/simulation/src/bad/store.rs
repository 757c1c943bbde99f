//! A store seen through something wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_consumer::CONSUMER_KIND;
use dueline_domain::{
    Event, JobName, Reason, Rejected, State, Task, TaskId, Timestamp, Token, WorkerId,
};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, Store, StoreError, WorkerRecord,
    fakes::{SeededRng, StoreLayer},
};

use super::Bad;

/// How often a stubborn caller tries again.
const STORM: usize = 10;

/// A store seen through something wrong.
pub(crate) struct BadStore {
    inner: Arc<dyn Store>,
    bad: Bad,
    rng: SeededRng,
    memory: Mutex<Memory>,
}

/// What it remembers and should not.
#[derive(Default)]
struct Memory {
    cursor: Timestamp,
    /// Tasks that were on a page.
    seen: BTreeSet<TaskId>,
    members: BTreeMap<WorkerId, WorkerRecord>,
    looks: u64,
    /// Whether a page came back empty.
    ended: bool,
}

impl BadStore {
    pub(crate) fn new(inner: Arc<dyn Store>, bad: Bad, seed: u64) -> Self {
        let (rng, memory) = (SeededRng::new(seed), Mutex::default());
        Self {
            inner,
            bad,
            rng,
            memory,
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, bad: Bad) -> bool {
        self.bad == bad
    }

    /// Calls once, or too often.
    async fn stubborn<T, F: Future<Output = T>>(
        &self,
        call: impl Fn() -> F,
        is_throttled: impl Fn(&T) -> bool,
    ) -> T {
        let mut answer = call().await;
        for _ in 0..STORM {
            if !self.is(Bad::RetryStorm) || !is_throttled(&answer) {
                break;
            }
            answer = call().await;
        }
        answer
    }

    async fn apply_one(&self, now: Timestamp, command: Command) -> Result<Applied, StoreError> {
        let (job, id) = (command.job.clone(), command.id);
        let Some(task) = self.inner.get(&job, &id).await? else {
            return Err(StoreError::no_task(&id));
        };
        let (now, command) = match self.bad {
            Bad::NoTokenCheck => (now, with_present_token(command, &task)),
            Bad::WatchdogWithoutCompare => with_present_view(now, command, &task),
            Bad::TrustsIndex if is_stale(&command, &task) => with_present_view(now, command, &task),
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

/// Whether the index told the sender something that is not so any more.
fn is_stale(command: &Command, task: &Task) -> bool {
    match &command.event {
        Event::Trigger(trigger) => trigger.seen != task.kind(),
        _ => false,
    }
}

/// The answer of a create that never got as far as the store.
async fn made_up(store: &dyn Store, now: Timestamp, create: Create) -> Created {
    let job = store.job(&create.task.job).await.ok().flatten();
    let policy = job.map(|job| job.policy.clone()).unwrap_or_default();
    let (token, write) = (create.token, create.write);
    let task = create
        .task
        .into_task(&policy, now, token, write, create.hand_on);
    Created {
        task: Box::new(task),
        existed: false,
    }
}

fn is_throttled<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Throttled))
}

#[async_trait]
impl StoreLayer for BadStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let mut answers = Vec::new();
        for create in new {
            let forgets = self.is(Bad::AckBeforeCommit) && self.rng.below(10) == 0;
            if forgets {
                answers.push(Ok(made_up(&*self.inner, now, create).await));
                continue;
            }
            let call = async || self.inner.create(now, vec![create.clone()]).await.pop();
            let throttled = |answer: &Option<_>| answer.as_ref().is_some_and(is_throttled);
            answers.extend(match self.stubborn(call, throttled).await {
                Some(Err(StoreError::Throttled)) if self.is(Bad::PartIsAll) => {
                    Some(Ok(made_up(&*self.inner, now, create).await))
                }
                answer => answer,
            });
        }
        answers
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        let call = || self.inner.get(job, id);
        self.stubborn(call, is_throttled).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        if self.is(Bad::RetryStorm) {
            let call = || self.inner.apply(now, commands.clone());
            let throttled = |answers: &Vec<_>| answers.iter().any(is_throttled);
            return self.stubborn(call, throttled).await;
        }
        if self.bad.is_of_hosts() {
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
        let mut page = self.stubborn(call, is_throttled).await?;
        let mut memory = self.memory();
        match self.bad {
            Bad::CursorPoll => {
                page.tasks.retain(|task| task.trigger_at > memory.cursor);
                let last = page.tasks.iter().map(|task| task.trigger_at).max();
                memory.cursor = last.unwrap_or(memory.cursor).max(memory.cursor);
            }
            Bad::ForwardCursor => {
                let Memory { cursor, seen, .. } = &mut *memory;
                page.tasks
                    .retain(|task| task.trigger_at > *cursor || seen.contains(&task.id));
                seen.extend(page.tasks.iter().map(|task| task.id));
                // What did not fit on the page is still ahead.
                if !page.more {
                    *cursor = query.now.max(*cursor);
                }
            }
            Bad::EmptyIsEnd => {
                memory.ended |= page.more && page.tasks.is_empty();
                if memory.ended {
                    page = DuePage::default();
                }
            }
            _ => {}
        }
        drop(memory);
        Ok(page)
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        let mut records = self.inner.workers().await?;
        if self.is(Bad::GhostMembers) {
            let mut memory = self.memory();
            let consumers = records.extract_if(.., |record| &*record.kind == CONSUMER_KIND);
            for record in consumers {
                memory.members.insert(record.id.clone(), record);
            }
            // Each of them seems to have given a sign of life since the last look.
            memory.looks += 1;
            let since = Duration::from_millis(memory.looks);
            records.extend(memory.members.values().map(|member| WorkerRecord {
                seen_at: member.seen_at.after(since),
                ..member.clone()
            }));
        }
        Ok(records)
    }
}
