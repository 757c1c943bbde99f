//! What may happen to a task: one function decides, one file per move.

mod abandon;
mod cancel;
mod checkpoint;
mod claim;
mod finish;
mod heartbeat;
mod lost;
mod modify;
mod redrive;
mod start;
mod trash;
mod trigger;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    Jitter, Policy, Priority, RetryClass, RunEnd, RunRecord, State, StateKind, Task, Timestamp,
    Token, Weight, WorkerId, WriteId, limits,
};

/// Something that may happen to a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// What the task waited for has come: it is handed on, or waits for its time.
    Release {
        /// Token of the hand-on, if there is one.
        token: Token,
    },
    /// The consumer saw that the trigger time has passed.
    Trigger(Trigger),
    /// The worker that owns the task is known to be gone, whatever its lease says.
    OwnerLost(OwnerLost),
    /// A worker takes ownership.
    Claim(Claim),
    /// The owner begins to run it.
    Start {
        /// The token of the claim.
        token: Token,
    },
    /// The owner is alive.
    Heartbeat {
        /// The token of the claim.
        token: Token,
    },
    /// The owner sets the end of its lease anew.
    Extend {
        /// The token of the claim.
        token: Token,
        /// From now on.
        by: Duration,
    },
    /// The owner stores what a later run should get instead of the payload.
    Checkpoint {
        /// The token of the claim.
        token: Token,
        /// The new input.
        payload: Bytes,
    },
    /// The run is over.
    Finish {
        /// The token of the claim.
        token: Token,
        /// When the run began, for an owner whose start is still on its way: start and outcome become one write.
        started_at: Option<Timestamp>,
        /// How it ended.
        outcome: Outcome,
        /// Randomness for the backoff.
        jitter: Jitter,
    },
    /// The owner gives the task back; no try is used.
    Abandon {
        /// The token of the claim.
        token: Token,
        /// Token of the hand-on that follows.
        next: Token,
    },
    /// The owner takes the task off for good.
    Trash {
        /// The token of the claim.
        token: Token,
        /// Why.
        reason: Arc<str>,
    },
    /// A user stops the task.
    Cancel {
        /// What to do when it is running.
        running: RunningCancel,
        /// Why.
        reason: Option<Arc<str>>,
    },
    /// A user changes a task that nobody owns.
    Modify {
        /// What changes.
        change: Modification,
        /// Token of the hand-on, if there is one.
        token: Token,
    },
    /// A gate discards the task.
    Drop {
        /// Why.
        reason: Arc<str>,
    },
    /// An operator puts a dead task back with a fresh count of tries.
    Redrive,
}

/// The consumer's view of a task whose trigger time has passed. If the task has moved since, nothing happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// The state the consumer saw.
    pub seen: StateKind,
    /// The trigger time the consumer saw.
    pub seen_at: Timestamp,
    /// Token of the hand-on that follows.
    pub token: Token,
    /// Randomness for the backoff of a lost run.
    pub jitter: Jitter,
}

/// A worker known to be dead.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerLost {
    /// The token the dead worker held.
    pub token: Token,
    /// Token of the hand-on that follows.
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
    /// Whether the run begins with this very write, because an executor is free.
    pub start: bool,
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
        /// Why, as far as waiting is concerned.
        class: RetryClass,
        /// A wait that the handler asks for instead of the backoff.
        delay: Option<Duration>,
        /// What went wrong.
        error: Arc<str>,
    },
    /// The handler failed and trying again is of no use.
    Fatal {
        /// What went wrong.
        error: Arc<str>,
    },
    /// The worker stopped the run because a user had asked for it.
    Cancelled,
}

/// What cancelling does to a task that somebody owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunningCancel {
    /// Refuse: the caller is told that it runs.
    #[default]
    Refuse,
    /// Ask the worker to stop, by its next heartbeat.
    Request,
}

/// A change of a task that nobody owns. What is `None` stays.
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

/// A decided move: every field that the write sets, and nothing else changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The next state.
    pub state: State,
    /// Runs counted.
    pub tries: u32,
    /// Claims lost.
    pub losses: u32,
    /// Whether a stop of the run is asked for.
    pub cancel_requested: bool,
    /// When this happens.
    pub changed_at: Timestamp,
    /// Start of the latest run.
    pub started_at: Option<Timestamp>,
    /// End of the task.
    pub finished_at: Option<Timestamp>,
    /// The write that does it.
    pub write: WriteId,
    /// A run to add to the history.
    pub run: Option<Box<RunRecord>>,
    /// A checkpoint to store.
    pub checkpoint: Option<Bytes>,
    /// A result to store.
    pub result: Option<Bytes>,
    /// An error or reason to store.
    pub error: Option<Arc<str>>,
    /// Fields a user changed.
    pub modified: Option<Box<Modification>>,
    /// Whether the task begins a new life: earlier error and result are cleared.
    pub fresh: bool,
}

/// A move that is not legal; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {verb} a task that is {state}: {reason}")]
pub struct Rejected {
    /// What was tried.
    pub verb: Verb,
    /// The state that stood against it.
    pub state: StateKind,
    /// Why, for machines.
    pub reason: Reason,
    /// The owner, where the reason is about ownership.
    pub owner: Option<WorkerId>,
}

/// What was tried; one per kind of [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// [`Event::Release`]
    Release,
    /// [`Event::Trigger`]
    Trigger,
    /// [`Event::OwnerLost`]
    OwnerLost,
    /// [`Event::Claim`]
    Claim,
    /// [`Event::Start`]
    Start,
    /// [`Event::Heartbeat`]
    Heartbeat,
    /// [`Event::Extend`]
    Extend,
    /// [`Event::Checkpoint`]
    Checkpoint,
    /// [`Event::Finish`]
    Finish,
    /// [`Event::Abandon`]
    Abandon,
    /// [`Event::Trash`]
    Trash,
    /// [`Event::Cancel`]
    Cancel,
    /// [`Event::Modify`]
    Modify,
    /// [`Event::Drop`]
    Drop,
    /// [`Event::Redrive`]
    Redrive,
}

impl Verb {
    /// The name in errors and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Trigger => "trigger",
            Self::OwnerLost => "take back",
            Self::Claim => "claim",
            Self::Start => "start",
            Self::Heartbeat => "heartbeat",
            Self::Extend => "extend",
            Self::Checkpoint => "checkpoint",
            Self::Finish => "finish",
            Self::Abandon => "abandon",
            Self::Trash => "trash",
            Self::Cancel => "cancel",
            Self::Modify => "modify",
            Self::Drop => "drop",
            Self::Redrive => "redrive",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a move is not legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The token is stale: the task was handed on since. The worker must stop.
    Lost,
    /// Somebody else owns it.
    AlreadyClaimed,
    /// Nobody owns it.
    NotClaimed,
    /// The run has not begun.
    NotStarted,
    /// The run has begun before.
    AlreadyStarted,
    /// A worker owns it, so a user may not change it.
    Running,
    /// It has ended.
    Finished,
    /// It has not ended.
    NotFinished,
    /// The lease has lapsed.
    Expired,
    /// It waits for a parent or predecessor.
    Waiting,
    /// It waits for nothing.
    NotWaiting,
    /// Its time has not come.
    NotDue,
    /// It moved since it was seen.
    Moved,
    /// Nobody asked to stop it.
    CancelNotRequested,
}

impl Reason {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::AlreadyClaimed => "already_claimed",
            Self::NotClaimed => "not_claimed",
            Self::NotStarted => "not_started",
            Self::AlreadyStarted => "already_started",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::NotFinished => "not_finished",
            Self::Expired => "expired",
            Self::Waiting => "waiting",
            Self::NotWaiting => "not_waiting",
            Self::NotDue => "not_due",
            Self::Moved => "moved",
            Self::CancelNotRequested => "cancel_not_requested",
        }
    }

    /// Every reason, for the documentation and for parsing.
    pub const ALL: [Self; 14] = [
        Self::Lost,
        Self::AlreadyClaimed,
        Self::NotClaimed,
        Self::NotStarted,
        Self::AlreadyStarted,
        Self::Running,
        Self::Finished,
        Self::NotFinished,
        Self::Expired,
        Self::Waiting,
        Self::NotWaiting,
        Self::NotDue,
        Self::Moved,
        Self::CancelNotRequested,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Event {
    /// What this tries.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Release { .. } => Verb::Release,
            Self::Trigger(_) => Verb::Trigger,
            Self::OwnerLost(_) => Verb::OwnerLost,
            Self::Claim(_) => Verb::Claim,
            Self::Start { .. } => Verb::Start,
            Self::Heartbeat { .. } => Verb::Heartbeat,
            Self::Extend { .. } => Verb::Extend,
            Self::Checkpoint { .. } => Verb::Checkpoint,
            Self::Finish { .. } => Verb::Finish,
            Self::Abandon { .. } => Verb::Abandon,
            Self::Trash { .. } => Verb::Trash,
            Self::Cancel { .. } => Verb::Cancel,
            Self::Modify { .. } => Verb::Modify,
            Self::Drop { .. } => Verb::Drop,
            Self::Redrive => Verb::Redrive,
        }
    }
}

/// Decides what `event` does to `task` at `now`, under the policy of its job.
///
/// Pure: the same arguments give the same answer. On an error nothing has happened. `write` names this write; a
/// caller that sees its own name on the stored task ([`Task::write`]) has already succeeded and does not come here.
pub fn apply(
    task: &Task,
    job: &Policy,
    event: &Event,
    write: WriteId,
    now: Timestamp,
) -> Result<Transition, Rejected> {
    let policy = task.policy(job);
    // A clock that steps back must not make a task older than it is.
    let now = now.max(task.changed_at);
    let step = Step {
        task,
        policy: &policy,
        verb: event.verb(),
        write,
        now,
    };
    match event {
        Event::Release { token } => trigger::release(&step, *token),
        Event::Trigger(trigger) => trigger::trigger(&step, trigger),
        Event::OwnerLost(lost) => lost::owner_lost(&step, lost),
        Event::Claim(claim) => claim::claim(&step, claim),
        Event::Start { token } => start::start(&step, *token),
        Event::Heartbeat { token } => heartbeat::heartbeat(&step, *token),
        Event::Extend { token, by } => heartbeat::extend(&step, *token, *by),
        Event::Checkpoint { token, payload } => checkpoint::checkpoint(&step, *token, payload),
        Event::Finish {
            token,
            started_at,
            outcome,
            jitter,
        } => finish::finish(&step, *token, *started_at, outcome, *jitter),
        Event::Abandon { token, next } => abandon::abandon(&step, *token, *next),
        Event::Trash { token, reason } => trash::trash(&step, *token, reason),
        Event::Cancel { running, reason } => cancel::cancel(&step, *running, reason.clone()),
        Event::Modify { change, token } => modify::modify(&step, change, *token),
        Event::Drop { reason } => cancel::drop(&step, reason),
        Event::Redrive => redrive::redrive(&step),
    }
}

/// What every move has at hand.
struct Step<'a> {
    task: &'a Task,
    policy: &'a Policy,
    verb: Verb,
    write: WriteId,
    now: Timestamp,
}

impl Step<'_> {
    /// The move into `state` that changes nothing else.
    fn to(&self, state: State) -> Transition {
        Transition {
            state,
            tries: self.task.tries,
            losses: self.task.losses,
            cancel_requested: self.task.cancel_requested,
            changed_at: self.now,
            started_at: self.task.started_at,
            finished_at: None,
            write: self.write,
            run: None,
            checkpoint: None,
            result: None,
            error: None,
            modified: None,
            fresh: false,
        }
    }

    /// The move into a final state.
    fn end(&self, state: State, error: Option<Arc<str>>) -> Transition {
        Transition {
            finished_at: Some(self.now),
            cancel_requested: false,
            error,
            ..self.to(state)
        }
    }

    /// The move that hands the task on to its queue.
    fn hand_on(&self, token: Token) -> Transition {
        let expires_at = self.now.after(self.policy.enqueue_timeout);
        self.to(State::Enqueued { token, expires_at })
    }

    fn reject(&self, reason: Reason) -> Rejected {
        Rejected {
            verb: self.verb,
            state: self.task.kind(),
            reason,
            owner: self.task.lease().map(|lease| lease.worker.clone()),
        }
    }

    /// Why a worker with `token` may not do this in the present state.
    fn reject_worker(&self, token: Token) -> Rejected {
        let reason = match &self.task.state {
            state if state.kind().is_final() => Reason::Finished,
            State::Waiting | State::New { .. } => Reason::NotClaimed,
            State::Enqueued { token: held, .. } if *held == token => Reason::NotClaimed,
            State::Claimed { token: held, .. } if *held == token => Reason::NotStarted,
            State::Processing { token: held, .. } if *held == token => Reason::AlreadyStarted,
            _ => Reason::Lost,
        };
        self.reject(reason)
    }

    /// The record of the run that began at `started_at` and is over now.
    fn run(&self, started_at: Timestamp, tries: u32, end: RunEnd, info: &str) -> Box<RunRecord> {
        let worker = self.task.lease().map(|lease| lease.worker.clone());
        Box::new(RunRecord {
            attempt: tries.saturating_sub(1),
            worker: worker.unwrap_or_else(|| {
                // Only owned tasks have runs, so this worker is never seen.
                WorkerId::parse("nobody").expect("a legal worker id")
            }),
            started_at,
            finished_at: self.now,
            end,
            info: cut(info),
        })
    }
}

/// Cuts a text to the error limit, on a character boundary.
fn cut(text: &str) -> Arc<str> {
    let max = limits().error_bytes_max;
    if text.len() <= max {
        return Arc::from(text);
    }
    let end = (0..=max).rev().find(|i| text.is_char_boundary(*i));
    Arc::from(&text[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests;
