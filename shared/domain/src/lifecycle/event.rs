//! The events: what may happen to a task, with the values that each event carries.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::Verb;
use crate::{
    EdgeKind, Effect, Family, Jitter, Priority, RetryClass, StateKind, TaskAddress, TaskEnd,
    TaskOptions, Timestamp, Token, Weight, WorkerId, WriteId,
};

/// What happens to a task: the input of [`apply`](crate::apply).
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Another task is about to wait for this one.
    Follow(EdgeKind),
    /// A task that this one waits for has ended.
    Release(Release),
    /// The run from inside which this task was submitted has ended.
    RunEnded(RunEnded),
    /// The consumer found that the trigger time has passed.
    Trigger(Trigger),
    /// The worker that owns the task is known to be gone. Its lease ends at once.
    Reclaim(Reclaim),
    /// A worker takes ownership.
    Claim(Claim),
    /// An owner takes this very task, without its message.
    ClaimChosen(ClaimChosen),
    /// The owner begins the run.
    Start {
        /// The token of the claim.
        token: Token,
    },
    /// The owner renews its lease.
    Heartbeat {
        /// The token of the claim.
        token: Token,
    },
    /// The owner sets a new end of its lease, which may be earlier than the present one.
    Extend {
        /// The token of the claim.
        token: Token,
        /// Duration of the lease from now on.
        by: Duration,
    },
    /// The owner stores the input that later runs get instead of the payload.
    Checkpoint {
        /// The token of the claim.
        token: Token,
        /// The new input.
        payload: Bytes,
    },
    /// A task is about to be submitted from inside the run.
    Stage {
        /// The token of the claim.
        token: Token,
    },
    /// A later run of the task that had submitted this one submits it again.
    Adopt(Box<Adopt>),
    /// The run has ended.
    Finish {
        /// The token of the claim.
        token: Token,
        /// When the run began. An owner sends it while its start may not be stored yet: start and outcome become one
        /// write.
        started_at: Option<Timestamp>,
        /// How the run ended.
        outcome: Outcome,
        /// Randomness for the backoff.
        jitter: Jitter,
    },
    /// The owner gives up the task without an outcome. The task is enqueued again; no try is used.
    Abandon {
        /// The token of the claim.
        token: Token,
        /// Token with which the task is enqueued again.
        next: Token,
    },
    /// The owner ends the task for good without an outcome.
    Trash {
        /// The token of the claim.
        token: Token,
        /// Why.
        reason: Arc<str>,
    },
    /// A user cancels the task.
    Cancel {
        /// What to do when a worker owns the task.
        running: RunningCancel,
        /// Why.
        reason: Option<Arc<str>>,
    },
    /// A user changes a task that has no owner.
    Modify {
        /// What changes.
        change: Modification,
        /// Token for the case that the task is enqueued again.
        token: Token,
    },
    /// A later submit with the same key replaces a task whose run has not begun.
    Replace(Box<Replacement>),
    /// A gate discards the task.
    Drop {
        /// Why.
        reason: Arc<str>,
    },
    /// An operator puts a failed or trashed task back with a fresh count of tries.
    Redrive,
    /// A task that was cancelled because another one ended waits for that one again, which was redriven.
    Revive(Revive),
    /// A child of a task whose family is closed was redriven.
    Reopen,
    /// All children of a task that has succeeded seem to have ended.
    Close(Close),
    /// The consumer has done, or failed to do, an effect that the task owes.
    Settle(Settle),
}

impl Event {
    /// Which kind of event this is.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Follow(_) => Verb::Follow,
            Self::Close(_) => Verb::Close,
            Self::Release(_) | Self::RunEnded(_) => Verb::Release,
            Self::Stage { .. } => Verb::Stage,
            Self::Adopt(_) => Verb::Adopt,
            Self::Trigger(_) => Verb::Trigger,
            Self::Reclaim(_) => Verb::Reclaim,
            Self::Claim(_) | Self::ClaimChosen(_) => Verb::Claim,
            Self::Start { .. } => Verb::Start,
            Self::Heartbeat { .. } => Verb::Heartbeat,
            Self::Extend { .. } => Verb::Extend,
            Self::Checkpoint { .. } => Verb::Checkpoint,
            Self::Finish { .. } => Verb::Finish,
            Self::Abandon { .. } => Verb::Abandon,
            Self::Trash { .. } => Verb::Trash,
            Self::Cancel { .. } => Verb::Cancel,
            Self::Modify { .. } => Verb::Modify,
            Self::Replace(_) => Verb::Replace,
            Self::Drop { .. } => Verb::Drop,
            Self::Redrive => Verb::Redrive,
            Self::Revive(_) => Verb::Revive,
            Self::Reopen => Verb::Reopen,
            Self::Settle(_) => Verb::Settle,
        }
    }
}

/// A task that waits learns that one of those that it waits for has ended. The event is refused if it has learned so
/// before.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// Why this task waits for it.
    pub kind: EdgeKind,
    /// The task that has ended.
    pub from: TaskAddress,
    /// How it ended.
    pub end: TaskEnd,
    /// Token for the case that the task is enqueued; `None` if its job holds due tasks back for the scan.
    pub token: Option<Token>,
}

/// A staged task learns how the run that had submitted it ended. The event is refused if it has learned so before, or if a
/// later run has submitted it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnded {
    /// The run.
    pub run: Token,
    /// Whether it succeeded. The task is discarded otherwise.
    pub succeeded: bool,
    /// Token for the case that the task is enqueued; `None` if its job holds due tasks back for the scan.
    pub token: Option<Token>,
}

/// A staged task is submitted again by a later run of the same task: it is staged for that run, and an end of the earlier
/// one does not count any more. The event is refused if another run was faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopt {
    /// The run that has submitted the task as it was read.
    pub seen: Token,
    /// What the submit asks for, with the ends that were known when it was read.
    pub family: Family,
    /// The other fields that the submit may set anew.
    pub change: Modification,
}

/// A task that was cancelled waits again. The event is refused if it was cancelled for another reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Revive {
    /// Why this task waits for the other one.
    pub kind: EdgeKind,
    /// The task because of whose end this one was cancelled.
    pub from: TaskAddress,
}

/// The two steps by which a family is closed, so that no child slips in between: a mark, which a new child removes, and the
/// end, after the children were read once more. Each is refused if the task has changed since it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Close {
    /// The write of the task that was read.
    pub seen: WriteId,
    /// How many children did not succeed, in the second step; `None` in the first.
    pub failed: Option<u32>,
}

/// A task whose trigger time has passed, as the consumer read it. The event is refused if the task has moved since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// The state that the consumer read.
    pub seen: StateKind,
    /// The trigger time that the consumer read.
    pub seen_at: Timestamp,
    /// Token for the case that the task is enqueued.
    pub token: Token,
    /// Randomness for the backoff of a lost run.
    pub jitter: Jitter,
}

/// The result of an effect that a finished task owed. The event is refused if the task has changed since the consumer
/// read it: it may have been redriven, and owe the same effect for another end.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// The write of the task that the consumer read.
    pub seen: WriteId,
    /// The effect.
    pub effect: Effect,
    /// Why the effect failed, with the randomness of its backoff; `None` when it is done.
    pub failed: Option<(Arc<str>, Jitter)>,
}

/// The end of a lease whose worker is known to be gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Reclaim {
    /// The token of that worker's claim.
    pub token: Token,
    /// Token with which the task is enqueued again.
    pub next: Token,
    /// Randomness for the backoff.
    pub jitter: Jitter,
}

/// A worker takes ownership.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The token of the message.
    pub token: Token,
    /// The new owner.
    pub worker: WorkerId,
    /// Whether the run begins with this write, because an executor is free.
    pub start: bool,
}

/// An owner takes a task that it has chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimChosen {
    /// The token of the claim. It replaces that of the task's message, which becomes stale.
    pub token: Token,
    /// The new owner.
    pub worker: WorkerId,
    /// How long the claim lasts.
    pub lifetime: ClaimLifetime,
}

/// How long a claim lasts before its run begins, unless its owner extends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimLifetime {
    /// As long as the claim timeout of the job.
    #[default]
    OfJob,
    /// As long as its owner has asked for.
    For(Duration),
    /// Until its owner ends it.
    Never,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The handler succeeded.
    Success {
        /// What it returned.
        result: Option<Bytes>,
    },
    /// The handler failed and may be tried again.
    Retriable {
        /// Selects the backoff.
        class: RetryClass,
        /// A wait that the handler chose instead of the backoff.
        delay: Option<Duration>,
        /// What went wrong.
        error: Arc<str>,
    },
    /// The handler failed, and another run would fail as well.
    Fatal {
        /// What went wrong.
        error: Arc<str>,
    },
    /// The worker stopped the run because a user had requested it.
    Cancelled,
}

/// What cancelling does to a task that a worker owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunningCancel {
    /// Refuse with [`Reason::Running`](crate::Reason::Running).
    #[default]
    Refuse,
    /// Request that the worker stops the run; the reply to its next heartbeat carries the request.
    Request,
}

/// A change of a task that has no owner. A field that is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modification {
    /// New due time; a past one means now.
    pub run_at: Option<Timestamp>,
    /// New priority.
    pub priority: Option<Priority>,
    /// New weight.
    pub weight: Option<Weight>,
    /// New payload.
    pub payload: Option<Bytes>,
}

/// What a task becomes that a later submit replaces.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// Due time, priority, weight and payload of that submit.
    pub change: Modification,
    /// Its rare fields.
    pub options: Option<Box<TaskOptions>>,
    /// Token for the case that the task is enqueued; `None` if its job holds due tasks back for the scan.
    pub token: Option<Token>,
}
