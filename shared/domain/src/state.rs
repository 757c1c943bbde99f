//! What a task can be.

use std::{fmt, str::FromStr};

use crate::{Timestamp, Token, WorkerId};

/// The state of a task, with the data that only exists in that state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a parent or predecessor.
    Waiting,
    /// Waits for its time.
    New {
        /// When it is due.
        due_at: Timestamp,
    },
    /// Handed on to the queue of its job.
    Enqueued {
        /// The token of this hand-on.
        token: Token,
        /// When the message counts as lost.
        expires_at: Timestamp,
    },
    /// Owned by a worker that has not begun to run it.
    Claimed {
        /// The token the owner must show.
        token: Token,
        /// Who owns it and until when.
        lease: Lease,
    },
    /// A worker runs it.
    Processing {
        /// The token the owner must show.
        token: Token,
        /// Who owns it and until when.
        lease: Lease,
    },
    /// Failed, and runs again at its time.
    Retriable {
        /// When it is due again.
        retry_at: Timestamp,
    },
    /// Ended well.
    Succeeded,
    /// Ended badly: a fatal failure, or no try left.
    Failed,
    /// Stopped by a user.
    Cancelled,
    /// Taken off by its owner, or by the watchdog because it keeps killing its workers.
    Trashed,
    /// Discarded by a gate before it ran.
    Dropped,
}

/// Ownership with a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The owner.
    pub worker: WorkerId,
    /// When it took over.
    pub claimed_at: Timestamp,
    /// When it was last heard of.
    pub heartbeat_at: Timestamp,
    /// When ownership lapses without another heartbeat.
    pub expires_at: Timestamp,
    /// Beyond this no heartbeat helps; set when a run begins.
    pub deadline_at: Option<Timestamp>,
}

impl Lease {
    /// When ownership lapses, the deadline included.
    pub fn ends_at(&self) -> Timestamp {
        self.deadline_at
            .map_or(self.expires_at, |deadline| deadline.min(self.expires_at))
    }
}

impl State {
    /// Which state this is, without its data.
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Waiting => StateKind::Waiting,
            Self::New { .. } => StateKind::New,
            Self::Enqueued { .. } => StateKind::Enqueued,
            Self::Claimed { .. } => StateKind::Claimed,
            Self::Processing { .. } => StateKind::Processing,
            Self::Retriable { .. } => StateKind::Retriable,
            Self::Succeeded => StateKind::Succeeded,
            Self::Failed => StateKind::Failed,
            Self::Cancelled => StateKind::Cancelled,
            Self::Trashed => StateKind::Trashed,
            Self::Dropped => StateKind::Dropped,
        }
    }

    /// When the scheduler must next look at a task in this state. Only `waiting` and the final states have none.
    pub fn trigger_at(&self) -> Option<Timestamp> {
        match self {
            Self::New { due_at } => Some(*due_at),
            Self::Enqueued { expires_at, .. } => Some(*expires_at),
            Self::Claimed { lease, .. } | Self::Processing { lease, .. } => Some(lease.ends_at()),
            Self::Retriable { retry_at } => Some(*retry_at),
            _ => None,
        }
    }

    /// The token a worker must show, while there is one.
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Enqueued { token, .. }
            | Self::Claimed { token, .. }
            | Self::Processing { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// The lease, while somebody owns the task.
    pub const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Claimed { lease, .. } | Self::Processing { lease, .. } => Some(lease),
            _ => None,
        }
    }
}

/// A state without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// See [`State::Waiting`].
    Waiting,
    /// See [`State::New`].
    New,
    /// See [`State::Enqueued`].
    Enqueued,
    /// See [`State::Claimed`].
    Claimed,
    /// See [`State::Processing`].
    Processing,
    /// See [`State::Retriable`].
    Retriable,
    /// See [`State::Succeeded`].
    Succeeded,
    /// See [`State::Failed`].
    Failed,
    /// See [`State::Cancelled`].
    Cancelled,
    /// See [`State::Trashed`].
    Trashed,
    /// See [`State::Dropped`].
    Dropped,
}

impl StateKind {
    /// All states in the order of their stored codes.
    pub const ALL: [Self; 11] = [
        Self::Waiting,
        Self::New,
        Self::Enqueued,
        Self::Claimed,
        Self::Processing,
        Self::Retriable,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Trashed,
        Self::Dropped,
    ];

    /// The name on the wire and in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::New => "new",
            Self::Enqueued => "enqueued",
            Self::Claimed => "claimed",
            Self::Processing => "processing",
            Self::Retriable => "retriable",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Trashed => "trashed",
            Self::Dropped => "dropped",
        }
    }

    /// The number stores keep; it never changes its meaning.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state of a stored number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether the task has ended.
    pub const fn is_final(self) -> bool {
        self.code() >= Self::Succeeded.code()
    }

    /// Whether nobody owns the task and it has not ended.
    pub const fn is_pending(self) -> bool {
        !self.is_final() && !self.is_owned()
    }

    /// Whether a worker owns the task.
    pub const fn is_owned(self) -> bool {
        matches!(self, Self::Claimed | Self::Processing)
    }

    /// Whether a task may go from this state to `next` (design §2); the table that `apply` is checked against.
    pub const fn may_become(self, next: Self) -> bool {
        use StateKind::*;
        match self {
            Waiting => matches!(next, Waiting | New | Enqueued | Cancelled),
            New => matches!(next, New | Enqueued | Cancelled | Dropped),
            Enqueued => matches!(
                next,
                Enqueued | New | Claimed | Processing | Cancelled | Dropped
            ),
            Claimed => {
                matches!(next, Claimed | Processing | Enqueued | Trashed)
                    || matches!(next, Succeeded | Failed | Retriable | Cancelled)
            }
            Processing => matches!(
                next,
                Processing | Succeeded | Failed | Retriable | Trashed | Enqueued | Cancelled
            ),
            Retriable => matches!(next, Retriable | New | Enqueued | Cancelled | Dropped),
            Failed | Trashed => matches!(next, New),
            Succeeded | Cancelled | Dropped => false,
        }
    }

    /// The view that Effectum and Prefect users know.
    pub const fn coarse(self) -> CoarseState {
        match self {
            Self::Waiting | Self::New | Self::Enqueued | Self::Retriable => CoarseState::Pending,
            Self::Claimed | Self::Processing => CoarseState::Running,
            Self::Succeeded => CoarseState::Succeeded,
            Self::Failed | Self::Trashed => CoarseState::Failed,
            Self::Cancelled | Self::Dropped => CoarseState::Cancelled,
        }
    }

    /// The view that jobboard users know.
    pub const fn board(self) -> BoardState {
        match self {
            Self::Claimed | Self::Processing => BoardState::Claimed,
            Self::Waiting | Self::New | Self::Enqueued | Self::Retriable => BoardState::Unclaimed,
            _ => BoardState::Complete,
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StateKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|k| k.name()).collect();
                format!("unknown state '{text}'; known are {}", known.join(", "))
            })
    }
}

/// Five states for people who only ask how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoarseState {
    /// Not owned, not ended.
    Pending,
    /// Owned by a worker.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Stopped or discarded.
    Cancelled,
}

impl CoarseState {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Three states for jobboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardState {
    /// Up for grabs, now or later.
    Unclaimed,
    /// Owned.
    Claimed,
    /// Off the board.
    Complete,
}

impl BoardState {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unclaimed => "unclaimed",
            Self::Claimed => "claimed",
            Self::Complete => "complete",
        }
    }
}
