//! A status controller with its dependencies.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_api::{
    Action, ApiError, Assignment, Registration, Report, ReportAck, StatusController as _,
};
use dueline_domain::{
    Event, Handler, Jitter, Job, JobName, NewTask, Outcome, Policy, Quota, RetryClass, Task,
    TaskId, TaskRef, Timestamp, Trigger, WorkerId,
};
use dueline_ports::{
    Clock as _, Command, Create, JobStore as _, PutJob, Rng as _, TaskStore,
    fakes::{MemoryStore, MessageLog, SeededRng, TokioClock},
};
use dueline_runtime::{DueSignal, EndSignal};
use dueline_status_controller::{Config, Deps, StatusControllerService};

use crate::counting::CountingStore;

pub(crate) struct Bench {
    pub(crate) controller: Arc<StatusControllerService>,
    pub(crate) store: Arc<MemoryStore>,
    /// Where tasks are created: the store, or a layer above it.
    submits: Arc<dyn TaskStore>,
    pub(crate) queue: Arc<MessageLog>,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) rng: Arc<SeededRng>,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) ended: Arc<EndSignal>,
}

impl Bench {
    /// A store with the job `mail`, and a controller over it.
    pub(crate) async fn new() -> Self {
        let base = Timestamp::clamped(1_700_000_000_000);
        let bench = Self::over(Arc::default(), Arc::new(TokioClock::new(base)), 1);
        bench.put_job(Policy::default()).await;
        bench
    }

    /// As [`Bench::new`], with the settings for expensive writes and a store that counts them.
    pub(crate) async fn expensive() -> (Self, Arc<CountingStore>) {
        let bench = Self::new().await;
        let counting = Arc::new(CountingStore::new(bench.store.clone()));
        let config = Config {
            claims_start: true,
            heartbeats_coalesced: true,
            ..Config::default()
        };
        let deps = Deps {
            store: counting.clone(),
            queue: bench.queue.clone(),
            clock: bench.clock.clone(),
            rng: bench.rng.clone(),
            due: bench.due.clone(),
            ended: bench.ended.clone(),
        };
        let controller = StatusControllerService::new(config, deps);
        let bench = Self {
            controller,
            submits: counting.clone(),
            ..bench
        };
        (bench, counting)
    }

    /// Another process over the same store.
    pub(crate) fn restarted(&self) -> Self {
        Self::over(self.store.clone(), self.clock.clone(), 2)
    }

    fn over(store: Arc<MemoryStore>, clock: Arc<TokioClock>, seed: u64) -> Self {
        let rng = Arc::new(SeededRng::new(seed));
        let (due, ended) = (Arc::<DueSignal>::default(), Arc::<EndSignal>::default());
        let queue = Arc::<MessageLog>::default();
        let deps = Deps {
            store: store.clone(),
            queue: queue.clone(),
            clock: clock.clone(),
            rng: rng.clone(),
            due: due.clone(),
            ended: ended.clone(),
        };
        let controller = StatusControllerService::new(Config::default(), deps);
        Self {
            controller,
            submits: store.clone(),
            store,
            queue,
            clock,
            rng,
            due,
            ended,
        }
    }

    pub(crate) async fn put_job(&self, policy: Policy) {
        let handler = Handler {
            kind: "exec".into(),
            config: r#"{"command":["true"]}"#.into(),
        };
        let job = Job {
            name: mail(),
            info: "".into(),
            handler,
            policy,
            quota: Quota::default(),
            fair_share: None,
            paused: false,
            created_by: "test".into(),
            created_at: self.clock.now(),
            changed_at: self.clock.now(),
        };
        let if_absent = false;
        self.store.put_job(PutJob { job, if_absent }).await.unwrap();
    }

    pub(crate) fn new_task(&self) -> NewTask {
        let id = self.rng.task_id(self.clock.now());
        NewTask::now(id, mail(), Bytes::from_static(b"payload"))
    }

    /// Stores a task. Returns the message that its submit sends.
    pub(crate) async fn submit(&self, task: NewTask) -> TaskRef {
        let create = Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            may_enqueue: true,
            claim_for: None,
        };
        let mut created = self.submits.create(self.clock.now(), vec![create]).await;
        let task = created.remove(0).unwrap().task;
        task.message().unwrap()
    }

    /// The messages sent since the last call.
    pub(crate) fn sent(&self) -> Vec<TaskRef> {
        self.queue.take(mail().as_str(), usize::MAX)
    }

    /// Applies an event that does not come from a worker.
    pub(crate) async fn apply(&self, id: TaskId, event: Event) -> Task {
        let command = Command {
            job: mail(),
            id,
            event,
            write: self.rng.write_id(),
        };
        let mut applied = self.store.apply(self.clock.now(), vec![command]).await;
        *applied.remove(0).unwrap().task
    }

    pub(crate) async fn task(&self, id: TaskId) -> Task {
        self.store.get(&mail(), &id).await.unwrap().unwrap()
    }

    pub(crate) async fn try_claim(
        &self,
        name: &str,
        message: &TaskRef,
    ) -> Result<Assignment, ApiError> {
        let messages = vec![message.clone()];
        let mut answers = self.controller.claim(&worker(name), messages, false).await;
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// Submits a task and claims it.
    pub(crate) async fn claimed(&self, name: &str) -> Assignment {
        let message = self.submit(self.new_task()).await;
        self.try_claim(name, &message).await.unwrap()
    }

    /// Triggers the task, as the consumer does after its trigger time.
    pub(crate) async fn trigger(&self, id: TaskId) -> Task {
        let task = self.task(id).await;
        let trigger = Event::Trigger(Trigger {
            seen: task.kind(),
            seen_at: task.state.trigger_at().unwrap(),
            token: self.rng.token(),
            jitter: Jitter::default(),
        });
        self.apply(id, trigger).await
    }

    /// Claims a task and starts it with the same write.
    pub(crate) async fn claim_and_start(&self, message: &TaskRef) -> Assignment {
        let messages = vec![message.clone()];
        let claimed = self.controller.claim(&worker("w"), messages, true).await;
        claimed.into_iter().next().unwrap().unwrap()
    }

    /// Submits a task, claims it and starts it.
    pub(crate) async fn started(&self, name: &str) -> Assignment {
        let assignment = self.claimed(name).await;
        self.report(&assignment, Action::Start).await.unwrap();
        assignment
    }

    pub(crate) fn report_of(&self, assignment: &Assignment, action: Action) -> Report {
        Report {
            job: assignment.job.clone(),
            id: assignment.id,
            token: assignment.token,
            write: self.rng.write_id(),
            action,
            trace: None,
        }
    }

    pub(crate) async fn report(
        &self,
        assignment: &Assignment,
        action: Action,
    ) -> Result<ReportAck, ApiError> {
        self.send(self.report_of(assignment, action)).await
    }

    pub(crate) async fn send(&self, report: Report) -> Result<ReportAck, ApiError> {
        let mut answers = self.controller.report(vec![report]).await;
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }
}

pub(crate) fn mail() -> JobName {
    JobName::parse("mail").unwrap()
}

pub(crate) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name, 1).unwrap()
}

pub(crate) fn registration(name: &str, embedded: bool) -> Registration {
    Registration {
        worker: worker(name),
        jobs: vec![mail()],
        handlers: vec!["exec".into()],
        concurrency: 4,
        embedded,
        kind: dueline_ports::ProcessKind::Executor,
        metadata: dueline_ports::Metadata::new(),
    }
}

pub(crate) const fn finish(outcome: Outcome) -> Action {
    Action::Finish {
        started_at: None,
        outcome,
    }
}

pub(crate) fn success() -> Action {
    let result = Some(Bytes::from_static(b"result"));
    finish(Outcome::Success { result })
}

pub(crate) fn retriable() -> Action {
    finish(Outcome::Retriable {
        class: RetryClass::Standard,
        delay: Some(Duration::from_secs(7)),
        error: "not now".into(),
    })
}
