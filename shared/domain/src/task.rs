//! A task: one unit of work of a job.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    Backoff, Claim, Event, JobName, Lease, Policy, Priority, State, StateKind, TaskId, TaskRef,
    Timestamp, Token, Transition, Weight, WorkerId, WriteId, apply, limits,
};

/// Everything known about one task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The public id.
    pub id: TaskId,
    /// The job it belongs to.
    pub job: JobName,
    /// What it is now.
    pub state: State,
    /// Urgency among ready tasks of the job.
    pub priority: Priority,
    /// What it counts against an executor's maximum concurrency.
    pub weight: Weight,
    /// When it was first due; never changed by retries.
    pub run_at: Timestamp,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last changed; never before `created_at`, never backwards.
    pub changed_at: Timestamp,
    /// When its latest run began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Runs that used up a try. The run in progress has this number minus one (0 for the first) as its attempt.
    pub tries: u32,
    /// Claims lost before a run began; these use no try but are capped.
    pub losses: u32,
    /// Whether a user asked to stop the run in progress.
    pub cancel_requested: bool,
    /// The write that made it what it is now.
    pub write: WriteId,
    /// What the handler gets, as submitted.
    pub payload: Bytes,
    /// What later runs get instead of the payload.
    pub checkpoint: Option<Bytes>,
    /// What a successful run returned.
    pub result: Option<Bytes>,
    /// Why it last failed, was cancelled, trashed or dropped.
    pub error: Option<Arc<str>>,
    /// Earlier runs; the latest is told by the fields above while it lasts and once it succeeded.
    pub history: Option<Box<History>>,
    /// What most tasks do not have.
    pub extras: Option<Box<Extras>>,
}

/// Fields that most tasks leave empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// A name for people; need not be unique.
    pub name: Option<Arc<str>>,
    /// A JSON object for people, as text.
    pub details: Option<Arc<str>>,
    /// Words to filter by.
    pub tags: Vec<Arc<str>>,
    /// Idempotency key, unique within the job.
    pub key: Option<Arc<str>>,
    /// Who submitted it.
    pub created_by: Option<Arc<str>>,
    /// Media type of the payload.
    pub content_type: Option<Arc<str>>,
    /// W3C trace context of the submit.
    pub trace: Option<Arc<str>>,
    /// What this task wants otherwise than its job.
    pub overrides: Option<Overrides>,
}

/// What a task may want otherwise than its job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Runs after the first.
    pub retries_max: Option<u32>,
    /// Waits of the standard class.
    pub backoff: Option<Backoff>,
    /// See [`Policy::heartbeat_timeout`].
    pub heartbeat_timeout: Option<Duration>,
    /// See [`Policy::heartbeat_increment`].
    pub heartbeat_increment: Option<Duration>,
    /// See [`Policy::run_timeout`].
    pub run_timeout: Option<Duration>,
}

/// Runs that are over, oldest first, bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The runs kept: the first, and the latest.
    pub runs: Vec<RunRecord>,
    /// Runs that were dropped between the first and the second one kept.
    pub dropped: u32,
}

impl History {
    /// Adds a run; the oldest but the first gives way when the history is full.
    pub fn push(&mut self, run: RunRecord) {
        if self.runs.len() >= limits().history_len_max {
            self.runs.remove(1);
            self.dropped = self.dropped.saturating_add(1);
        }
        self.runs.push(run);
    }
}

/// One run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Number of the run, 0 for the first.
    pub attempt: u32,
    /// Who ran it.
    pub worker: WorkerId,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was over.
    pub finished_at: Timestamp,
    /// How it ended.
    pub end: RunEnd,
    /// Result or error text, cut to the limit.
    pub info: Arc<str>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The handler succeeded.
    Succeeded,
    /// The handler failed and another try is left, or none was.
    Retriable,
    /// The handler said that trying again is of no use.
    Fatal,
    /// The worker was not heard of in time.
    Lost,
    /// The worker gave it back.
    Abandoned,
    /// A user stopped it.
    Cancelled,
    /// The worker trashed it.
    Trashed,
}

impl RunEnd {
    /// All ends in the order of their stored codes.
    pub const ALL: [Self; 7] = [
        Self::Succeeded,
        Self::Retriable,
        Self::Fatal,
        Self::Lost,
        Self::Abandoned,
        Self::Cancelled,
        Self::Trashed,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Retriable => "retriable",
            Self::Fatal => "fatal",
            Self::Lost => "lost",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
            Self::Trashed => "trashed",
        }
    }
}

/// What a client submits, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTask {
    /// The id, chosen by the client or made by the frontend.
    pub id: TaskId,
    /// Whether the client chose the id, so that the same submit twice is one task.
    pub id_is_given: bool,
    /// The job.
    pub job: JobName,
    /// When it is due; `None` means at once.
    pub run_at: Option<Timestamp>,
    /// Urgency.
    pub priority: Priority,
    /// Weight.
    pub weight: Weight,
    /// What the handler gets.
    pub payload: Bytes,
    /// The rest.
    pub extras: Option<Box<Extras>>,
}

impl NewTask {
    /// A task of `job` that is due at once, with everything else at its default.
    pub fn now(id: TaskId, job: JobName, payload: Bytes) -> Self {
        Self {
            id,
            id_is_given: false,
            job,
            run_at: None,
            priority: Priority::default(),
            weight: Weight::ONE,
            payload,
            extras: None,
        }
    }

    /// The task that this submit makes at `now`. One that is due, in a job whose gate is open (`hand_on`), is born
    /// enqueued: the run-now path spends no second write on it.
    pub fn into_task(
        self,
        policy: &Policy,
        now: Timestamp,
        token: Token,
        write: WriteId,
        hand_on: bool,
    ) -> Task {
        let run_at = self.run_at.unwrap_or(now);
        let state = if run_at <= now && hand_on {
            let expires_at = now.after(policy.enqueue_timeout);
            State::Enqueued { token, expires_at }
        } else {
            State::New { due_at: run_at }
        };
        Task {
            id: self.id,
            job: self.job,
            state,
            priority: self.priority,
            weight: self.weight,
            run_at,
            created_at: now,
            changed_at: now,
            started_at: None,
            finished_at: None,
            tries: 0,
            losses: 0,
            cancel_requested: false,
            write,
            payload: self.payload,
            checkpoint: None,
            result: None,
            error: None,
            history: None,
            extras: self.extras,
        }
    }
}

impl Task {
    /// Makes a task that is born enqueued the property of a worker that waits for it, within the same write: what a
    /// claim right afterwards would have done. Any other task stays as it is.
    pub fn claim_at_birth(&mut self, job: &Policy, worker: WorkerId) {
        let State::Enqueued { token, .. } = self.state else {
            return;
        };
        let claim = Event::Claim(Claim {
            token,
            worker,
            start: false,
        });
        if let Ok(transition) = apply(self, job, &claim, self.write, self.created_at) {
            self.advance(transition);
        }
    }

    /// Which state this is in.
    pub const fn kind(&self) -> StateKind {
        self.state.kind()
    }

    /// The lease, while somebody owns the task.
    pub const fn lease(&self) -> Option<&Lease> {
        self.state.lease()
    }

    /// What the next run gets: the checkpoint, or else the payload.
    pub fn input(&self) -> &Bytes {
        self.checkpoint.as_ref().unwrap_or(&self.payload)
    }

    /// The policy that holds for this task, given its job's.
    pub fn policy<'a>(&self, job: &'a Policy) -> std::borrow::Cow<'a, Policy> {
        match self.extras.as_ref().and_then(|e| e.overrides.as_ref()) {
            Some(overrides) => std::borrow::Cow::Owned(job.with(overrides)),
            None => std::borrow::Cow::Borrowed(job),
        }
    }

    /// The message for the queue, when the task is enqueued.
    pub fn message(&self) -> Option<TaskRef> {
        let State::Enqueued { token, .. } = self.state else {
            return None;
        };
        Some(TaskRef {
            job: self.job.clone(),
            id: self.id,
            token,
            priority: self.priority,
            weight: self.weight,
            due_at: self.run_at,
            trace: self.extras.as_ref().and_then(|e| e.trace.clone()),
        })
    }

    /// Whether a submit would make this very task again: same job, body, time and settings. Times that the
    /// frontend filled in are not compared.
    pub fn is_made_by(&self, submit: &NewTask) -> bool {
        self.job == submit.job
            && self.payload == submit.payload
            && self.priority == submit.priority
            && self.weight == submit.weight
            && submit.run_at.is_none_or(|at| at == self.run_at)
            && comparable(self.extras.as_deref()) == comparable(submit.extras.as_deref())
    }

    /// Carries out a transition that [`crate::apply`] decided on for this very task.
    pub fn advance(&mut self, transition: Transition) {
        let Transition {
            state,
            tries,
            losses,
            cancel_requested,
            changed_at,
            started_at,
            finished_at,
            write,
            run,
            checkpoint,
            result,
            error,
            modified,
            fresh,
        } = transition;
        self.state = state;
        self.tries = tries;
        self.losses = losses;
        self.cancel_requested = cancel_requested;
        self.changed_at = changed_at;
        self.started_at = started_at;
        self.finished_at = finished_at;
        self.write = write;
        if let Some(run) = run {
            self.history.get_or_insert_default().push(*run);
        }
        if checkpoint.is_some() {
            self.checkpoint = checkpoint;
        }
        if result.is_some() {
            self.result = result;
        }
        if error.is_some() {
            self.error = error;
        }
        if fresh {
            (self.error, self.result) = (None, None);
        }
        if self.kind() == StateKind::Succeeded {
            // Why an earlier run failed stands in the history.
            self.error = None;
        }
        if let Some(change) = modified {
            self.run_at = change.run_at.unwrap_or(self.run_at);
            self.priority = change.priority.unwrap_or(self.priority);
            self.weight = change.weight.unwrap_or(self.weight);
            if let Some(payload) = change.payload {
                self.payload = payload;
            }
        }
    }
}

type Comparable<'a> = (
    Option<&'a str>,
    Option<&'a str>,
    Vec<&'a str>,
    Option<&'a str>,
    BTreeMap<&'static str, String>,
);

fn comparable(extras: Option<&Extras>) -> Comparable<'_> {
    let Some(extras) = extras else {
        return Comparable::default();
    };
    let mut overrides = BTreeMap::new();
    if let Some(wanted) = extras
        .overrides
        .as_ref()
        .filter(|o| **o != Overrides::default())
    {
        overrides.insert("overrides", format!("{wanted:?}"));
    }
    (
        extras.name.as_deref(),
        extras.details.as_deref(),
        extras.tags.iter().map(AsRef::as_ref).collect(),
        extras.key.as_deref(),
        overrides,
    )
}
