//! Bugs planted on purpose, to test the checker. Each one breaks a single rule between the services and a correct
//! store or queue. The checker must detect every one of them.

mod ack_on_receive;
mod buggy_store;
mod schedules;

pub(crate) use self::{ack_on_receive::AckOnReceiveQueue, buggy_store::BuggyStore};

/// A bug that a world is played with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The store ignores tokens: it accepts the report of any worker.
    NoTokenCheck,
    /// Some submits are acknowledged and never stored.
    AckBeforeCommit,
    /// Messages are deleted as soon as they are received.
    DeleteBeforeClaim,
    /// The watchdog changes the task's current state instead of the state it read, whether or not the task is due.
    WatchdogWithoutCompare,
    /// Each read of due tasks begins where the previous one ended.
    CursorPoll,
    /// A claim of a task that is already claimed succeeds too.
    SharedClaims,
    /// Each read of due tasks begins where the previous one ended. Tasks that were on a page before are read again,
    /// but entries that appear in the index behind the cursor are never read.
    ForwardCursor,
    /// An index entry is trusted as the task's state, and the task is changed without a comparison.
    TrustsIndex,
    /// A consumer that was registered once counts as a member forever.
    GhostMembers,
    /// A batch that succeeded in part counts as a success.
    PartialBatchIsComplete,
    /// An empty page counts as the end of all work.
    EmptyPageIsEnd,
    /// Throttled calls are retried many times without a pause.
    RetryStorm,
    /// The record of a running task is delivered as that of a success, before the success is stored.
    DeliverBeforeCommit,
    /// An owed delivery is settled as soon as it is found, before it is done.
    SettleBeforeDelivery,
    /// A task that waits for several others counts their ends: the same end that is notified twice counts twice.
    CounterInsteadOfSet,
    /// A task whose run is in progress is taken for one that has succeeded, by those who wait for it.
    ReleaseBeforeCommit,
    /// What a run has staged goes on however that run ends.
    StagedCommittedOnFailure,
    /// The id of the task of a firing is drawn at random.
    RandomFiringIds,
    /// An interval counts from the latest turn whose tasks had ended.
    NextFiringFromEnd,
    /// A consumer that finds a schedule seconds late begins with the present time.
    ResumesAtPresent,
    /// A schedule replaces the stored one whatever that is.
    SchedulesWithoutCompare,
}

impl PlantedBug {
    /// Whether each host has the bug, rather than the store that all hosts share.
    pub(crate) const fn is_per_host(self) -> bool {
        matches!(
            self,
            Self::ForwardCursor
                | Self::GhostMembers
                | Self::PartialBatchIsComplete
                | Self::EmptyPageIsEnd
                | Self::RetryStorm
        )
    }
}
