//! Helpers of all cases: a job, tasks, and calls whose results are checked against the pure function.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_domain::{
    Claim, Event, Handler, Jitter, Job, JobName, NewTask, Outcome, Policy, Quota, Reason, Reclaim,
    RetryClass, State, StateKind, Task, TaskId, TaskOptions, Timestamp, Token, Trigger, WorkerId,
};

use crate::{
    Applied, Command, Create, Created, DuePage, DueQuery, ListQuery, PutJob, Rng as _, Share,
    Store, StoreError, TaskIds, fakes::SeededRng,
};

/// The time `ms` milliseconds after the beginning of the case.
pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp::clamped(1_700_000_000_000 + ms)
}

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn job_name(text: &str) -> JobName {
    JobName::parse(text).expect("a legal job name")
}

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name, 7).expect("a legal worker id")
}

/// The definition of a job with every setting at its default.
pub(super) fn job(name: &str) -> Job {
    Job {
        name: job_name(name),
        info: "for the conformance suite".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: "suite".into(),
        created_at: at(0),
        changed_at: at(0),
    }
}

pub(super) fn success(result: &'static str) -> Outcome {
    let result = Some(Bytes::from_static(result.as_bytes()));
    Outcome::Success { result }
}

pub(super) fn retriable(error: &str) -> Outcome {
    Outcome::Retriable {
        class: RetryClass::Standard,
        delay: None,
        error: error.into(),
    }
}

pub(super) fn fatal(error: &str) -> Outcome {
    let error = error.into();
    Outcome::Fatal { error }
}

pub(super) fn token(task: &Task) -> Token {
    task.state.token().expect("a task that carries a token")
}

pub(super) fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

/// A fresh store that has the job `mail`.
pub(super) struct StoreKit {
    pub(super) store: Arc<dyn Store>,
    pub(super) rng: SeededRng,
    pub(super) ids: TaskIds,
}

impl StoreKit {
    pub(super) async fn new(store: Arc<dyn Store>) -> Self {
        let rng = SeededRng::new(0x005e_ed00);
        let ids = TaskIds::new();
        let kit = Self { store, rng, ids };
        kit.put(job("mail")).await;
        kit
    }

    pub(super) async fn put(&self, job: Job) -> Arc<Job> {
        let if_absent = false;
        let put = self.store.put_job(PutJob { job, if_absent }).await;
        put.expect("a job can be stored")
    }

    /// Replaces the policy of the job `mail`.
    pub(super) async fn set_policy(&self, policy: Policy) {
        let changed = Job {
            policy,
            ..job("mail")
        };
        self.put(changed).await;
    }

    /// A submit of `mail` that is due at once.
    pub(super) fn new_task(&self) -> NewTask {
        self.new_task_of("mail")
    }

    pub(super) fn new_task_of(&self, job: &str) -> NewTask {
        // Ascending, as a frontend makes them.
        let id = self.ids.next(at(0), self.rng.next_u64().into());
        NewTask::now(id, job_name(job), Bytes::from_static(b"payload"))
    }

    /// A submit of `mail` that is due at `ms`.
    pub(super) fn task_due(&self, ms: i64) -> NewTask {
        let run_at = Some(at(ms));
        let new = self.new_task();
        NewTask {
            due: run_at.into(),
            ..new
        }
    }

    /// A submit of `mail` with options.
    pub(super) fn task_with(&self, options: TaskOptions) -> NewTask {
        let options = Some(Box::new(options));
        let new = self.new_task();
        NewTask { options, ..new }
    }

    pub(super) fn create_request(&self, task: NewTask) -> Create {
        Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            may_enqueue: true,
            claim_for: None,
        }
    }

    pub(super) async fn try_create(&self, ms: i64, new: NewTask) -> Result<Created, StoreError> {
        let request = self.create_request(new);
        let mut results = self.store.create(at(ms), vec![request]).await;
        assert_eq!(results.len(), 1, "one result per item");
        results.remove(0)
    }

    /// Stores a task that did not exist.
    pub(super) async fn create(&self, ms: i64, new: NewTask) -> Task {
        let created = self.try_create(ms, new).await.expect("a new task");
        assert!(!created.existed, "the task is new");
        assert_eq!(self.get(&created.task).await, *created.task);
        *created.task
    }

    /// Stores many tasks with one call.
    pub(super) async fn create_all(&self, ms: i64, new: Vec<NewTask>) -> Vec<Task> {
        let requests = new
            .into_iter()
            .map(|new| self.create_request(new))
            .collect();
        let results = self.store.create(at(ms), requests).await;
        let created = results.into_iter().map(|result| result.expect("a task"));
        created.map(|created| *created.task).collect()
    }

    pub(super) async fn find(&self, job: &JobName, id: &TaskId) -> Option<Task> {
        let found = self.store.get(job, id).await;
        found.expect("the store answers")
    }

    pub(super) async fn get(&self, task: &Task) -> Task {
        let found = self.find(&task.job, &task.id).await;
        found.expect("a stored task")
    }

    pub(super) fn command(&self, task: &Task, event: Event) -> Command {
        Command {
            job: task.job.clone(),
            id: task.id,
            event,
            write: self.rng.write_id(),
        }
    }

    /// Sends one command.
    pub(super) async fn send(&self, ms: i64, command: Command) -> Result<Applied, StoreError> {
        let mut results = self.store.apply(at(ms), vec![command]).await;
        assert_eq!(results.len(), 1, "one result per command");
        results.remove(0)
    }

    /// Applies an event that must succeed. The result and the stored task must be as the pure function decides.
    pub(super) async fn apply(&self, ms: i64, task: &Task, event: Event) -> Task {
        let command = self.command(task, event);
        let definition = self.store.job(&task.job).await.expect("the store answers");
        let policy = &definition.expect("the job").policy;
        let mut expected = self.get(task).await;
        let decided =
            dueline_domain::apply(&expected, policy, &command.event, command.write, at(ms));
        expected.advance(decided.expect("a legal event"));
        let applied = self.send(ms, command).await.expect("a legal event");
        assert!(!applied.repeated, "the command is new");
        assert_eq!(*applied.task, expected);
        assert_eq!(self.get(task).await, expected);
        expected
    }

    /// Applies an event that must be rejected and must not change the task.
    pub(super) async fn refused(&self, ms: i64, task: &Task, event: Event) -> Reason {
        let before = self.get(task).await;
        let answer = self.send(ms, self.command(task, event.clone())).await;
        assert_eq!(self.get(task).await, before, "{event:?} changed the task");
        match answer {
            Err(StoreError::Rejected(rejected)) => rejected.reason,
            other => panic!("{event:?} should be rejected, but: {other:?}"),
        }
    }

    /// The claim of the message of `task`.
    pub(super) fn claim_event(&self, task: &Task, name: &str, start: bool) -> Event {
        Event::Claim(Claim {
            token: token(task),
            worker: worker(name),
            start,
        })
    }

    pub(super) async fn claim(&self, ms: i64, task: &Task, name: &str) -> Task {
        self.apply(ms, task, self.claim_event(task, name, false))
            .await
    }

    pub(super) async fn start(&self, ms: i64, task: &Task) -> Task {
        let token = token(task);
        self.apply(ms, task, Event::Start { token }).await
    }

    /// Claims and starts, with one write unless there is only one try.
    pub(super) async fn run(&self, ms: i64, task: &Task, name: &str) -> Task {
        let claimed = self
            .apply(ms, task, self.claim_event(task, name, true))
            .await;
        match claimed.kind() {
            StateKind::Claimed => self.start(ms, &claimed).await,
            _ => claimed,
        }
    }

    pub(super) fn finish_event(&self, task: &Task, outcome: Outcome) -> Event {
        Event::Finish {
            token: token(task),
            started_at: None,
            outcome,
            jitter: Jitter::default(),
        }
    }

    pub(super) async fn finish(&self, ms: i64, task: &Task, outcome: Outcome) -> Task {
        self.apply(ms, task, self.finish_event(task, outcome)).await
    }

    /// The consumer's trigger event for `task`.
    pub(super) fn trigger_event(&self, task: &Task) -> Event {
        Event::Trigger(Trigger {
            seen: task.kind(),
            seen_at: task.state.trigger_at().expect("a trigger time"),
            token: self.rng.token(),
            jitter: Jitter::default(),
        })
    }

    /// Applies the consumer's trigger event.
    pub(super) async fn trigger(&self, ms: i64, task: &Task) -> Task {
        self.apply(ms, task, self.trigger_event(task)).await
    }

    pub(super) fn reclaim_event(&self, task: &Task) -> Event {
        Event::Reclaim(Reclaim {
            token: token(task),
            next: self.rng.token(),
            jitter: Jitter::default(),
        })
    }

    /// A task that has just succeeded.
    pub(super) async fn succeeded(&self, ms: i64) -> Task {
        let task = self.create(ms, self.new_task()).await;
        let task = self.run(ms, &task, "w").await;
        self.finish(ms, &task, success("done")).await
    }

    /// All tasks of a job, by pages of `limit`.
    pub(super) async fn list_by(&self, query: &ListQuery, limit: usize) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut query = query.clone();
        query.limit = limit;
        // A store may return short pages, but not without end.
        for _ in 0..10_000 {
            let page = self.store.list(query.clone()).await.expect("a page");
            assert!(page.tasks.len() <= limit, "no page exceeds its limit");
            tasks.extend(page.tasks);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return tasks,
            }
        }
        panic!("the listing never ends");
    }

    pub(super) async fn due(&self, ms: i64) -> DuePage {
        self.due_by(ms, 100, &[]).await
    }

    pub(super) async fn due_by(&self, ms: i64, limit: usize, pending: &[(&str, usize)]) -> DuePage {
        let pending = pending.iter().map(|(job, max)| (job_name(job), *max));
        self.due_page(DueQuery {
            limit_per_job: limit,
            pending_limits: pending.collect(),
            ..due_query(ms)
        })
        .await
    }

    pub(super) async fn due_owed_by(
        &self,
        ms: i64,
        limit: usize,
        by_job: &[(&str, usize)],
    ) -> DuePage {
        let by_job = by_job.iter().map(|(job, max)| (job_name(job), *max));
        self.due_page(DueQuery {
            owed_limit: limit,
            owed_limits: by_job.collect(),
            ..due_query(ms)
        })
        .await
    }

    pub(super) async fn due_of(&self, ms: i64, share: Share) -> DuePage {
        let share = Some(share);
        self.due_page(DueQuery {
            share,
            ..due_query(ms)
        })
        .await
    }

    async fn due_page(&self, query: DueQuery) -> DuePage {
        self.store.due(query).await.expect("a page of due tasks")
    }

    pub(super) async fn ready(&self, job: &str) -> Vec<TaskId> {
        let ready = self.store.ready(&job_name(job), 1_000).await;
        let ready = ready.expect("ready tasks");
        ready.into_iter().map(|message| message.id).collect()
    }

    /// Prunes until the scan is complete; returns how many tasks were deleted.
    pub(super) async fn prune(&self, ms: i64, limit: usize) -> usize {
        let mut total = 0;
        loop {
            let pruned = self.store.prune(at(ms), limit).await.expect("a prune");
            assert!(pruned.deleted <= limit, "no prune exceeds its limit");
            total += pruned.deleted;
            if !pruned.more {
                break;
            }
        }
        total
    }
}

fn due_query(ms: i64) -> DueQuery {
    DueQuery {
        now: at(ms),
        limit_per_job: 100,
        pending_limits: Default::default(),
        owed_limit: 100,
        owed_limits: Default::default(),
        share: None,
    }
}

/// When the message of an enqueued task counts as lost; `None` in any other state.
pub(super) fn enqueued_until(task: &Task) -> Option<Timestamp> {
    match task.state {
        State::Enqueued { expires_at, .. } => Some(expires_at),
        _ => None,
    }
}
