//! Systems that are wrong on purpose: the test of the tests. Each breaks one rule between the services and a store
//! or queue that is right; the checker must notice.

mod queue;
mod store;

pub(crate) use self::{queue::HastyQueue, store::BadStore};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The store does not look at tokens: whoever reports is believed.
    NoTokenCheck,
    /// Some submits are acknowledged and never stored.
    AckBeforeCommit,
    /// Messages are deleted when they are received.
    DeleteBeforeClaim,
    /// The watchdog moves whatever it finds, not what it saw, and does not look at the time.
    WatchdogWithoutCompare,
    /// Due tasks are read from where the last look ended.
    CursorPoll,
    /// A claim of a claimed task is granted too.
    SharedClaims,
    /// Due tasks are read from where the last look ended; those it has seen are followed up with all care, but what
    /// comes into the index behind the cursor is never looked for.
    ForwardCursor,
    /// What the index shows is taken for the state of the task, and moved without a comparison.
    TrustsIndex,
    /// A consumer that was seen once counts as there for ever.
    GhostMembers,
    /// A batch that was done in part is taken to be done.
    PartIsAll,
    /// An empty page is taken for the end of all work.
    EmptyIsEnd,
    /// What is throttled is tried again at once, many times.
    RetryStorm,
}

impl Bad {
    /// Whether each host is wrong for itself, rather than the store for all of them.
    pub(crate) const fn is_of_hosts(self) -> bool {
        matches!(
            self,
            Self::ForwardCursor
                | Self::GhostMembers
                | Self::PartIsAll
                | Self::EmptyIsEnd
                | Self::RetryStorm
        )
    }
}
