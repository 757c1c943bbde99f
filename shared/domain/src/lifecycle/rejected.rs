//! The result of an event that is not legal in the present state.

use std::fmt;

use super::Verb;
use crate::{StateKind, WorkerId};

/// An event that was refused; the task is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {verb} a task that is {state}: {reason}")]
pub struct Rejected {
    /// The kind of the event.
    pub verb: Verb,
    /// The state of the task.
    pub state: StateKind,
    /// Why, for programs.
    pub reason: Reason,
    /// The owner, while the task has one.
    pub owner: Option<WorkerId>,
}

/// Why an event was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The token is stale: the task has left the claim that the token belongs to. The worker must stop.
    Lost,
    /// Another worker owns the task.
    AlreadyClaimed,
    /// The task has no owner.
    NotClaimed,
    /// The run has not begun.
    NotStarted,
    /// The run has begun before.
    AlreadyStarted,
    /// A worker owns the task, so a user may not change it.
    Running,
    /// The task has ended.
    Finished,
    /// The task has not ended.
    NotFinished,
    /// The lease has reached a limit that no renewal moves: its run timeout, or its end if it has no increment.
    Expired,
    /// The task waits for a parent or predecessor.
    Waiting,
    /// The task does not wait for a parent or predecessor.
    NotWaiting,
    /// The trigger time has not passed.
    NotDue,
    /// The task has moved since the caller read it.
    Moved,
    /// No user requested that the run stops.
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
