//! The kinds of events by name.

use std::fmt;

/// The kind of an [`Event`](crate::Event).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// [`Event::Follow`]
    Follow,
    /// [`Event::Close`]
    Close,
    /// [`Event::Release`], [`Event::RunEnded`]
    Release,
    /// [`Event::Trigger`]
    Trigger,
    /// [`Event::Reclaim`]
    Reclaim,
    /// [`Event::Claim`], [`Event::ClaimChosen`]
    Claim,
    /// [`Event::Start`]
    Start,
    /// [`Event::Heartbeat`]
    Heartbeat,
    /// [`Event::Extend`]
    Extend,
    /// [`Event::Checkpoint`]
    Checkpoint,
    /// [`Event::Stage`]
    Stage,
    /// [`Event::Adopt`]
    Adopt,
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
    /// [`Event::Replace`]
    Replace,
    /// [`Event::Drop`]
    Drop,
    /// [`Event::Redrive`]
    Redrive,
    /// [`Event::Revive`]
    Revive,
    /// [`Event::Reopen`]
    Reopen,
    /// [`Event::Settle`]
    Settle,
}

impl Verb {
    /// The name in errors and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Follow => "follow",
            Self::Close => "close",
            Self::Release => "release",
            Self::Trigger => "trigger",
            Self::Reclaim => "reclaim",
            Self::Claim => "claim",
            Self::Start => "start",
            Self::Heartbeat => "heartbeat",
            Self::Extend => "extend",
            Self::Checkpoint => "checkpoint",
            Self::Stage => "stage",
            Self::Adopt => "adopt",
            Self::Finish => "finish",
            Self::Abandon => "abandon",
            Self::Trash => "trash",
            Self::Cancel => "cancel",
            Self::Modify => "modify",
            Self::Replace => "replace",
            Self::Drop => "drop",
            Self::Redrive => "redrive",
            Self::Revive => "revive",
            Self::Reopen => "reopen",
            Self::Settle => "settle",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
