//! A consumer on a store in memory and a local queue, under paused time.
#![allow(
    dead_code,
    reason = "each test file that includes the kit uses another part of it"
)]

mod test_store;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_consumer::{Config, Deps};
use dueline_domain::{
    Claim, Due, Event, Handler, Job, JobName, NewTask, Outcome, Policy, Quota, State, StateKind,
    Task, TaskId, Timestamp, WorkerId,
};
use dueline_ports::{
    Clock as _, Command, Create, Delivery, JobStore as _, PutJob, Rng as _, Store, TaskQueue as _,
    TaskStore as _,
    fakes::{MemorySinks, MemoryStore, SeededRng, TokioClock},
};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use dueline_runtime::{DueSignal, EndSignal, Shutdown, TaskGroup};
pub(crate) use test_store::TestStore;
use tokio::time::{Instant, sleep};

/// The time at which a test begins.
pub(crate) const START: Timestamp = match Timestamp::from_millis(1_700_000_000_000) {
    Ok(start) => start,
    Err(_) => panic!("an invalid time"),
};

pub(crate) struct Kit {
    pub(crate) store: Arc<TestStore>,
    pub(crate) queue: Arc<LocalQueue>,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) rng: Arc<SeededRng>,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) ended: Arc<EndSignal>,
    pub(crate) sinks: Arc<MemorySinks>,
    pub(crate) shutdown: Shutdown,
    group: TaskGroup,
    /// Tasks that [`Kit::stop`] does not wait for.
    endless: TaskGroup,
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn name(job: &str) -> JobName {
    JobName::parse(job).unwrap()
}

pub(crate) fn worker() -> WorkerId {
    WorkerId::new("w", 1).unwrap()
}

pub(crate) fn definition(job: &str) -> Job {
    Job {
        name: name(job),
        info: Arc::from(""),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: Arc::from("test"),
        created_at: START,
        changed_at: START,
    }
}

impl Kit {
    /// Creates the jobs `a` and `b`; starts no consumer.
    pub(crate) async fn new() -> Self {
        Self::with_queue(LocalQueueConfig::default()).await
    }

    /// As [`Kit::new`], with other random numbers.
    pub(crate) async fn seeded(seed: u64) -> Self {
        Self {
            rng: Arc::new(SeededRng::new(seed)),
            ..Self::new().await
        }
    }

    pub(crate) async fn with_queue(config: LocalQueueConfig) -> Self {
        let kit = Self {
            store: Arc::new(TestStore::new(MemoryStore::new())),
            queue: LocalQueue::new(config),
            clock: Arc::new(TokioClock::new(START)),
            rng: Arc::new(SeededRng::new(7)),
            due: Arc::new(DueSignal::default()),
            ended: Arc::default(),
            sinks: Arc::default(),
            shutdown: Shutdown::new(),
            group: TaskGroup::new(),
            endless: TaskGroup::new(),
        };
        kit.put(definition("a")).await;
        kit.put(definition("b")).await;
        kit
    }

    /// A new process with the same store and clock, and an empty queue.
    pub(crate) async fn restarted(self, config: LocalQueueConfig) -> Self {
        self.shutdown.stop_work();
        self.group.wait().await.unwrap();
        Self {
            queue: LocalQueue::new(config),
            due: Arc::default(),
            shutdown: Shutdown::new(),
            group: TaskGroup::new(),
            ..self
        }
    }

    pub(crate) async fn put(&self, job: Job) {
        let if_absent = false;
        self.store.put_job(PutJob { job, if_absent }).await.unwrap();
    }

    pub(crate) fn start(&self) {
        self.start_with(Config::default());
    }

    pub(crate) fn start_with(&self, config: Config) {
        let deps = Deps {
            store: self.store.clone(),
            queue: self.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: self.due.clone(),
            ended: self.ended.clone(),
            sinks: self.sinks.clone(),
        };
        let run = dueline_consumer::run(config, deps, self.shutdown.clone());
        self.group.spawn("consumer", run);
    }

    /// Starts one of several consumers, each with its own shutdown.
    pub(crate) fn start_separate(&self, config: Config) -> Shutdown {
        let deps = Deps {
            store: self.store.clone(),
            queue: self.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: Arc::default(),
            ended: Arc::default(),
            sinks: self.sinks.clone(),
        };
        let shutdown = Shutdown::new();
        self.group.spawn(
            "consumer",
            dueline_consumer::run(config, deps, shutdown.clone()),
        );
        shutdown
    }

    /// Starts a consumer on another view of the store. It may never end.
    pub(crate) fn start_on(&self, config: Config, store: Arc<dyn Store>) {
        let deps = Deps {
            store,
            queue: self.queue.clone(),
            clock: self.clock.clone(),
            rng: self.rng.clone(),
            due: Arc::default(),
            ended: Arc::default(),
            sinks: self.sinks.clone(),
        };
        let run = dueline_consumer::run(config, deps, Shutdown::new());
        self.endless.spawn("consumer", run);
    }

    /// The time since the start of the test.
    pub(crate) fn since_start(&self) -> Duration {
        self.clock.now().since(START)
    }

    pub(crate) async fn stop(self) {
        self.shutdown.stop_intake();
        self.group.wait().await.unwrap();
    }

    /// A new task of `job`, due this long after the start of the test.
    pub(crate) fn task(&self, job: &str, due_in: Duration) -> NewTask {
        NewTask {
            due: Due::At(START.after(due_in)),
            ..NewTask::now(
                self.rng.task_id(self.clock.now()),
                name(job),
                Bytes::from_static(b"{}"),
            )
        }
    }

    async fn create(&self, new: Vec<NewTask>, may_enqueue: bool) -> Vec<Task> {
        let create = |task| Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            may_enqueue,
            claim_for: None,
        };
        let new = new.into_iter().map(create).collect();
        let created = self.store.create(self.clock.now(), new).await;
        created.into_iter().map(|c| *c.unwrap().task).collect()
    }

    /// Stores a task without announcing it.
    pub(crate) async fn submit(&self, job: &str, due_in: Duration) -> Task {
        self.create(vec![self.task(job, due_in)], false)
            .await
            .remove(0)
    }

    pub(crate) async fn submit_many(&self, job: &str, due_in: Duration, count: usize) -> Vec<Task> {
        let new = (0..count).map(|_| self.task(job, due_in)).collect();
        self.create(new, false).await
    }

    /// Stores due tasks as enqueued, without sending their messages.
    pub(crate) async fn enqueue_without_messages(&self, job: &str, count: usize) -> Vec<Task> {
        let new = (0..count).map(|_| self.task(job, Duration::ZERO)).collect();
        self.create(new, true).await
    }

    /// Stores a task as it is after a submit, without sending its message.
    pub(crate) async fn store_as_enqueued(&self, new: NewTask) -> Task {
        self.create(vec![new], true).await.remove(0)
    }

    pub(crate) async fn store_all_as_enqueued(&self, new: Vec<NewTask>) -> Vec<Task> {
        self.create(new, true).await
    }

    pub(crate) async fn get(&self, task: &Task) -> Task {
        self.get_by_id(&task.job, &task.id).await
    }

    async fn get_by_id(&self, job: &JobName, id: &TaskId) -> Task {
        self.store.get(job, id).await.unwrap().unwrap()
    }

    pub(crate) async fn count(&self, job: &str, kind: StateKind) -> u64 {
        let stats = self.store.stats(&name(job)).await.unwrap();
        stats.by_state.get(&kind).copied().unwrap_or(0)
    }

    pub(crate) async fn visible(&self, job: &str) -> u64 {
        let depth = self.queue.depth(&name(job)).await;
        depth.map_or(0, |depth| depth.visible)
    }

    /// Receives one message and acknowledges it.
    pub(crate) async fn receive_and_ack(&self, job: &str, wait: Duration) -> Option<Delivery> {
        let name = name(job);
        self.queue.ensure(&name).await.unwrap();
        let got = self.queue.receive(&name, 1, wait).await.unwrap().pop()?;
        self.queue.ack(vec![got.receipt.clone()]).await.unwrap();
        Some(got)
    }

    pub(crate) async fn apply(&self, task: &Task, event: Event) -> Task {
        let command = Command {
            job: task.job.clone(),
            id: task.id,
            event,
            write: self.rng.write_id(),
        };
        let applied = self.store.apply(self.clock.now(), vec![command]).await;
        *applied.into_iter().next().unwrap().unwrap().task
    }

    /// A worker claims the task of a message, and starts it if `start` is set.
    pub(crate) async fn claim(&self, message: &Delivery, start: bool) -> Task {
        let task = self.get_by_id(&message.task.job, &message.task.id).await;
        let claim = Claim {
            token: message.task.token,
            worker: worker(),
            start,
        };
        self.apply(&task, Event::Claim(claim)).await
    }

    pub(crate) async fn heartbeat(&self, task: &Task) -> Task {
        let token = task.state.token().unwrap();
        self.apply(task, Event::Heartbeat { token }).await
    }

    pub(crate) async fn succeed(&self, task: &Task) -> Task {
        let finish = Event::Finish {
            token: task.state.token().unwrap(),
            started_at: None,
            outcome: Outcome::Success { result: None },
            jitter: self.rng.jitter(),
        };
        self.apply(task, finish).await
    }

    /// Lets time pass until this long after the start of the test.
    pub(crate) async fn run_until(&self, since_start: Duration) {
        let remaining = START.after(since_start).since(self.clock.now());
        sleep(remaining).await;
    }

    /// Lets time pass until the task is in the state `kind`, at most for `bound`.
    pub(crate) async fn wait_for_state(
        &self,
        task: &Task,
        kind: StateKind,
        bound: Duration,
    ) -> Task {
        let ends_at = Instant::now() + bound;
        loop {
            let now = self.get(task).await;
            if now.kind() == kind {
                return now;
            }
            assert!(Instant::now() < ends_at, "{:?}, not {kind}", now.state);
            sleep(ms(1)).await;
        }
    }
}

/// When the message of an enqueued task counts as lost.
pub(crate) fn expires_at(task: &Task) -> Timestamp {
    match task.state {
        State::Enqueued { expires_at, .. } => expires_at,
        ref other => panic!("{other:?}"),
    }
}

/// Ends a task as if its message had arrived: claims, starts and finishes it.
pub(crate) async fn end(kit: &Kit, task: &Task, outcome: Outcome) -> Task {
    let task = kit.get(task).await;
    let token = task.state.token();
    let token = token.unwrap_or_else(|| panic!("{:?}", task.state));
    let claim = Claim {
        token,
        worker: worker(),
        start: false,
    };
    kit.apply(&task, Event::Claim(claim)).await;
    let finish = Event::Finish {
        token,
        started_at: Some(kit.clock.now()),
        outcome,
        jitter: kit.rng.jitter(),
    };
    let ended = kit.apply(&task, finish).await;
    kit.due.announce(kit.clock.now());
    ended
}

pub(crate) fn success() -> Outcome {
    Outcome::Success { result: None }
}

pub(crate) fn fatal() -> Outcome {
    let error = "no".into();
    Outcome::Fatal { error }
}
