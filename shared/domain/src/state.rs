//! The states of a task.

use std::{fmt, str::FromStr};

use crate::{Policy, Timestamp, Token, WorkerId};

/// The state of a task, with the data that only exists in that state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for other tasks.
    Waiting {
        /// When the consumer checks whether it waits in vain.
        check_at: Timestamp,
    },
    /// Waits for its due time.
    New {
        /// When the task is due.
        due_at: Timestamp,
    },
    /// Enqueued: its message is in the queue of its job, or about to be sent there.
    Enqueued {
        /// The token of the message.
        token: Token,
        /// When the message counts as lost and the task is enqueued again.
        expires_at: Timestamp,
    },
    /// Owned by a worker that has not started to run the task.
    Claimed {
        /// The token that the owner must show.
        token: Token,
        /// The owner and its deadline.
        lease: Lease,
    },
    /// Owned by a worker that runs the task.
    Processing {
        /// The token that the owner must show.
        token: Token,
        /// The owner and its deadline.
        lease: Lease,
    },
    /// Failed, and due again after a wait.
    Retriable {
        /// When the task is due again.
        retry_at: Timestamp,
    },
    /// A run succeeded.
    Succeeded,
    /// A run failed for good, or no try was left.
    Failed,
    /// Cancelled by a user.
    Cancelled,
    /// Ended without an outcome: by its owner, or by the watchdog because too many claims were lost.
    Trashed,
    /// Discarded by a gate before it ran.
    Dropped,
}

/// Ownership of a task, with its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The owner.
    pub worker: WorkerId,
    /// When the owner claimed the task.
    pub claimed_at: Timestamp,
    /// When the owner last renewed the lease.
    pub heartbeat_at: Timestamp,
    /// When the lease ends unless it is renewed.
    pub expires_at: Timestamp,
    /// When the lease ends even if it is renewed: [`Policy::RUN_GRACE`] after the run timeout. Set when a run begins
    /// whose job has a run timeout.
    pub deadline_at: Option<Timestamp>,
}

impl Lease {
    /// When the run timeout ends. From then on the lease is not renewed, and its worker stops the run.
    pub fn run_ends_at(&self) -> Option<Timestamp> {
        let deadline = self.deadline_at?;
        Some(deadline.before(Policy::RUN_GRACE))
    }

    /// The lease with a later end: the deadline, if the lease lasts until the end of the run timeout. No heartbeat is
    /// then needed for the grace, in which none would be accepted.
    #[must_use]
    pub(crate) fn with_grace(self) -> Self {
        let reaches = self.run_ends_at().is_some_and(|end| self.expires_at >= end);
        Self {
            expires_at: match self.deadline_at {
                Some(deadline) if reaches => self.expires_at.max(deadline),
                _ => self.expires_at,
            },
            ..self
        }
    }

    /// Whether the lease ends only when its owner ends it.
    pub fn never_ends(&self) -> bool {
        self.ends_at() == Timestamp::MAX
    }

    /// When the lease ends: the earlier of `expires_at` and `deadline_at`.
    pub fn ends_at(&self) -> Timestamp {
        self.deadline_at
            .map_or(self.expires_at, |deadline| deadline.min(self.expires_at))
    }
}

impl State {
    /// Which state this is, without its data.
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Waiting { .. } => StateKind::Waiting,
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

    /// The trigger time of an unfinished task. Only the final states have none; in those, a task may owe an effect
    /// ([`Task::trigger_at`](crate::Task::trigger_at)).
    pub fn trigger_at(&self) -> Option<Timestamp> {
        match self {
            Self::Waiting { check_at } => Some(*check_at),
            Self::New { due_at } => Some(*due_at),
            Self::Enqueued { expires_at, .. } => Some(*expires_at),
            Self::Claimed { lease, .. } | Self::Processing { lease, .. } => Some(lease.ends_at()),
            Self::Retriable { retry_at } => Some(*retry_at),
            _ => None,
        }
    }

    /// The token that a worker must show. Only enqueued and owned tasks have one.
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Enqueued { token, .. }
            | Self::Claimed { token, .. }
            | Self::Processing { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// The lease, while a worker owns the task.
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

    /// The number that stores keep; its meaning never changes.
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

    /// Whether the task has no owner and has not ended.
    pub const fn is_pending(self) -> bool {
        !self.is_final() && !self.is_owned()
    }

    /// Whether the task is enqueued or owned. A job may limit how many of its tasks are.
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Self::Enqueued) || self.is_owned()
    }

    /// Whether a worker owns the task.
    pub const fn is_owned(self) -> bool {
        matches!(self, Self::Claimed | Self::Processing)
    }

    /// Whether a task may move from this state to `next`. Tests check `apply` against this table.
    pub const fn may_become(self, next: Self) -> bool {
        use StateKind::*;
        match self {
            Waiting => matches!(next, Waiting | New | Enqueued | Cancelled),
            New => matches!(next, New | Enqueued | Claimed | Cancelled | Dropped),
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
            Retriable => matches!(
                next,
                Retriable | New | Enqueued | Claimed | Cancelled | Dropped
            ),
            Failed | Trashed => matches!(next, New),
            Cancelled => matches!(next, Waiting),
            Succeeded | Dropped => false,
        }
    }

    /// The coarse view, as in Effectum and Prefect.
    pub const fn coarse(self) -> CoarseState {
        match self {
            Self::Waiting | Self::New | Self::Enqueued | Self::Retriable => CoarseState::Pending,
            Self::Claimed | Self::Processing => CoarseState::Running,
            Self::Succeeded => CoarseState::Succeeded,
            Self::Failed | Self::Trashed => CoarseState::Failed,
            Self::Cancelled | Self::Dropped => CoarseState::Cancelled,
        }
    }

    /// The view of a job board.
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
                let text = text.escape_debug();
                format!("unknown state '{text}'; known are {}", known.join(", "))
            })
    }
}

/// Five states for clients that only need the progress and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoarseState {
    /// Without an owner and not ended.
    Pending,
    /// Owned by a worker.
    Running,
    /// Succeeded.
    Succeeded,
    /// Failed or trashed.
    Failed,
    /// Cancelled or dropped.
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

/// Three states for job boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardState {
    /// Without an owner: claimable now or later.
    Unclaimed,
    /// Owned by a worker.
    Claimed,
    /// Ended.
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
