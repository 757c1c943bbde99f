//! The traits that services offer workers and each other. An implementation is the service itself or a client of it. The
//! operations of clients are in [`crate::operation`].

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_domain::{
    Event, Handler, Job, JobName, Outcome, StateKind, Task, TaskId, TaskRef, Timestamp, Token,
    Weight, WorkerId, WriteId,
};
use dueline_ports::{Command, Metadata, ProcessKind, Rng};

use crate::{ApiError, PredecessorResult};

/// What workers ask of the status controller: the only writer of their transitions.
#[async_trait]
pub trait StatusController: Send + Sync + 'static {
    /// Makes `worker` the owner of the tasks of messages; each has its own answer, in order. `Ok` means durable. An
    /// error that is not retryable means that the message is stale: delete it.
    ///
    /// With `start` the runs begin with the same write, for a worker that has a free slot for each; see
    /// [`Assignment::started`]. An implementation may claim without that all the same.
    ///
    /// A claim whose outcome is unknown must not be repeated in the hope of an assignment: it may be refused although
    /// the first one went through. Such a task comes back when its lease ends.
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>>;

    /// Takes reports of owners; each has its own answer, in order. `Ok` means durable. Repeating a report with the
    /// same write id is safe and is the way to deal with a lost answer.
    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>>;

    /// Registers or renews a worker. A worker that is not renewed for a while is forgotten; its tasks are governed
    /// by their own leases.
    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError>;

    /// Deregisters a worker. Tasks that it still owns are reclaimed at once.
    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError>;

    /// The jobs whose tasks may be dispatched, for a controller that decides which to serve: a paused job is left out,
    /// so what is queued already waits, too.
    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError>;
}

/// Whether a process can serve calls, for load balancers and supervisors.
#[async_trait]
pub trait Ready: Send + Sync + 'static {
    /// An error says why it cannot, for people.
    async fn ready(&self) -> Result<(), String>;
}

/// What a controller needs to know of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedJob {
    /// The job.
    pub name: JobName,
    /// Kind of its handler, see [`Handler::kind`].
    pub handler: Arc<str>,
}

/// What executors ask of their controller.
#[async_trait]
pub trait Controller: Send + Sync + 'static {
    /// Up to `tasks_max` tasks that are claimed for the worker, durably. Waits up to `wait` for the first one; an
    /// empty answer is no error. When the future is dropped, nothing is claimed that the caller could have missed
    /// for longer than the claim timeout.
    async fn poll(&self, ask: PollRequest) -> Result<Vec<Assignment>, ApiError>;
    /// As [`StatusController::report`].
    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>>;
    /// As [`StatusController::register_worker`].
    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError>;
    /// As [`StatusController::deregister_worker`].
    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError>;
}

/// A worker that says that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Name and incarnation.
    pub worker: WorkerId,
    /// Jobs it runs with code of its own.
    pub jobs: Vec<JobName>,
    /// Kinds of handlers it runs for any job, such as `exec`.
    pub handlers: Vec<Arc<str>>,
    /// Most weight it runs at once.
    pub concurrency: u32,
    /// Whether it lives in the server's own process.
    pub embedded: bool,
    /// What it is. Only executors get tasks.
    pub kind: ProcessKind,
    /// What it says about itself.
    pub metadata: Metadata,
}

/// Answer to a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// When to give the next one, and how often to heartbeat running tasks at least.
    pub interval: Duration,
    /// Whether each write is expensive: the worker polls only for tasks that it can start at once, with
    /// [`PollRequest::start`].
    pub claims_start: bool,
}

/// A worker that has room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollRequest {
    /// Who asks.
    pub worker: WorkerId,
    /// Jobs wanted, with any handler.
    pub jobs: Vec<JobName>,
    /// Kinds of handlers wanted, of any job. A task is dispatched when its job or its handler is wanted.
    pub handlers: Vec<Arc<str>>,
    /// Most tasks wanted.
    pub tasks_max: usize,
    /// Most weight wanted in total.
    pub weight_max: u32,
    /// Heaviest single task the worker could ever run.
    pub task_weight_max: u32,
    /// How long to wait for the first one.
    pub wait: Duration,
    /// Whether the worker begins at once all that it is given, so that claim and start may be one write.
    pub start: bool,
}

/// A task claimed for a worker, with all that running it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// Fencing token: every report shows it.
    pub token: Token,
    /// Number of this run, 0 for the first.
    pub attempt: u32,
    /// What to work on: the latest checkpoint, or else the payload.
    pub input: Bytes,
    /// Media type of the payload.
    pub content_type: Option<Arc<str>>,
    /// The task's name for people.
    pub name: Option<Arc<str>>,
    /// What it counts against the worker's concurrency.
    pub weight: Weight,
    /// When it was due.
    pub run_at: Timestamp,
    /// When it was claimed, by the status controller's clock.
    pub claimed_at: Timestamp,
    /// What runs it.
    pub handler: Handler,
    /// How long the claim holds without a start.
    pub claim_timeout: Duration,
    /// How long a run holds without a heartbeat.
    pub heartbeat_timeout: Duration,
    /// What a heartbeat adds; zero: heartbeats do not help, the run ends after `heartbeat_timeout`.
    pub heartbeat_increment: Duration,
    /// Longest run.
    pub run_timeout: Option<Duration>,
    /// Whether the start must be durable before the handler runs: this is the last try, and a crash must count.
    pub start_first: bool,
    /// Whether a run of this task has begun before.
    pub started_before: bool,
    /// W3C trace context of the claim, or of the submit if the claim was not traced.
    pub trace: Option<Arc<str>>,
    /// Whether the run has begun with the claim: its lease is that of a run from the claim on, and no start is to be
    /// reported.
    pub started: bool,
    /// What its predecessors have returned, in their order. The status controller adds the results themselves.
    pub results: Vec<PredecessorResult>,
    /// How long the worker's question had waited when the claim was made, at least. Added to the moment of asking it
    /// is a moment before the lease of a started run began, on the worker's own clock and however long the answer
    /// took. Set in answers to [`Controller::poll`].
    pub waited: Duration,
}

impl Assignment {
    /// All that running a claimed task takes, by the definition of its job; `None` for a task without an owner.
    pub fn of(task: Task, job: &Job) -> Option<Self> {
        let (token, lease) = (task.state.token()?, task.lease()?);
        let claimed_at = lease.claimed_at;
        let policy = task.policy(&job.policy);
        let started = task.kind() == StateKind::Processing;
        let attempt = task.attempt();
        // A try is counted when its run begins.
        let start_first = !started && !policy.retry.allows_after(task.tries.saturating_add(1));
        let (claim_timeout, run_timeout) = (policy.claim_timeout, policy.run_timeout);
        let heartbeat_timeout = policy.heartbeat_timeout;
        let heartbeat_increment = policy.heartbeat_increment;
        // A worker may begin before its start is durable, so a lost claim may have been a run as well.
        let has_begun = if started {
            attempt > 0
        } else {
            task.started_at.is_some()
        };
        let started_before = has_begun || task.history.is_some() || task.losses > 0;
        let input = task.input().clone();
        let options = task.options.map(|options| *options).unwrap_or_default();
        let after = options.family.iter().flat_map(|family| &family.after);
        let results = after.map(PredecessorResult::from).collect();
        Some(Self {
            job: task.job,
            id: task.id,
            token,
            attempt,
            input,
            content_type: options.content_type,
            name: options.name,
            weight: task.weight,
            run_at: task.run_at,
            claimed_at,
            handler: job.handler.clone(),
            claim_timeout,
            heartbeat_timeout,
            heartbeat_increment,
            run_timeout,
            start_first,
            started_before,
            trace: options.trace,
            started,
            results,
            waited: Duration::ZERO,
        })
    }
}

/// A controller in the frontend's own process: a worker that waits for work gets a new task with the very write that
/// stores it.
pub trait Dispatch: Send + Sync + 'static {
    /// Sets a waiting worker aside for a task of `job` with this weight, if there is one and nothing of the job stands
    /// before the task. The worker waits until the reservation is used or dropped.
    fn reserve(self: Arc<Self>, job: &JobName, weight: Weight) -> Option<Box<dyn Reservation>>;
}

/// A worker that was set aside.
pub trait Reservation: Send + Sync {
    /// The worker to claim the task for.
    fn worker(&self) -> &WorkerId;
    /// Dispatches the task, which is durably claimed, to the worker. If the worker is gone, the task is abandoned.
    fn deliver(self: Box<Self>, assignment: Assignment);
}

/// What an owner says about its task.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// The token of the assignment.
    pub token: Token,
    /// Name of the write; the same when the report is repeated.
    pub write: WriteId,
    /// What happened.
    pub action: Action,
    /// W3C trace context of the run, with the report of its end.
    pub trace: Option<Arc<str>>,
}

impl Report {
    /// The command that carries the report to a store.
    pub fn into_command(self, rng: &dyn Rng) -> Command {
        let token = self.token;
        let event = match self.action {
            Action::Start => Event::Start { token },
            Action::Heartbeat => Event::Heartbeat { token },
            Action::Extend { by } => Event::Extend { token, by },
            Action::Checkpoint { payload } => Event::Checkpoint { token, payload },
            Action::Finish {
                started_at,
                outcome,
            } => Event::Finish {
                token,
                started_at,
                outcome,
                jitter: rng.jitter(),
            },
            Action::Abandon => Event::Abandon {
                token,
                next: rng.token(),
            },
            Action::Trash { reason } => Event::Trash { token, reason },
        };
        Command {
            job: self.job,
            id: self.id,
            event,
            write: self.write,
        }
    }
}

/// What happened to an owned task.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Its run begins.
    Start,
    /// It is still running.
    Heartbeat,
    /// The lease shall end this long from now.
    Extend {
        /// From now on.
        by: Duration,
    },
    /// A later run shall get this.
    Checkpoint {
        /// The new input.
        payload: Bytes,
    },
    /// Its run is over.
    Finish {
        /// When the run began, by the worker's clock, if no start was reported yet.
        started_at: Option<Timestamp>,
        /// How it ended.
        outcome: Outcome,
    },
    /// The owner abandons it.
    Abandon,
    /// The owner trashes it: it never runs again.
    Trash {
        /// Why.
        reason: Arc<str>,
    },
}

impl ReportAck {
    /// The answer to a report whose task is `task` now.
    pub fn of(task: &Task, now: Timestamp) -> Self {
        let lease = task.lease();
        Self {
            state: task.kind(),
            cancel_requested: task.cancel_requested,
            lease: lease.map(|lease| lease.ends_at().since(now)),
        }
    }
}

/// Answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportAck {
    /// The task's state now.
    pub state: StateKind,
    /// Whether a user asked to stop the run.
    pub cancel_requested: bool,
    /// How long ownership lasts from now, while there is any.
    pub lease: Option<Duration>,
}
