//! The refill demand of a bounded queue: whether it lacks messages that the store has.

use std::time::Duration;

use tokio::time::Instant;

/// How long a reported demand waits for its refill. After this the caller that received it is assumed dead, and the
/// demand is reported again.
const REFILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a refill that added no message. Without it, a store whose ready tasks are all in the queue already would
/// cause endless refills.
const PAUSE_AFTER_EMPTY_REFILL: Duration = Duration::from_secs(1);

/// Whether the queue lacks messages, and when its demand may be reported.
#[derive(Debug)]
pub(crate) struct RefillState {
    /// Whether the store may have messages that the queue lacks.
    lacking: bool,
    /// Grows with every message refused or evicted.
    epoch: u64,
    /// The demand is not reported before this: a refill is in progress, or the last one added no message. Only
    /// set while messages may be lacking.
    quiet_until: Option<Instant>,
    /// Messages added since the demand was last reported.
    added: usize,
}

impl RefillState {
    /// State of a new queue: the process may have restarted, and the store may hold tasks that were enqueued before.
    pub(crate) const fn unknown() -> Self {
        Self {
            lacking: true,
            epoch: 0,
            quiet_until: None,
            added: 0,
        }
    }

    /// A message was refused or evicted.
    pub(crate) const fn missed(&mut self) {
        self.lacking = true;
        self.epoch += 1;
    }

    /// A message was added.
    pub(crate) const fn added(&mut self) {
        self.added += 1;
    }

    /// Whether messages may be lacking at all.
    pub(crate) const fn is_lacking(&self) -> bool {
        self.lacking
    }

    /// Whether the demand may be reported now.
    pub(crate) fn may_report(&self, now: Instant) -> bool {
        self.lacking && self.quiet_until.is_none_or(|until| until <= now)
    }

    /// When the demand may be reported again, if that is later than now.
    pub(crate) fn quiet_until(&self, now: Instant) -> Option<Instant> {
        self.quiet_until
            .filter(|until| self.lacking && *until > now)
    }

    /// Records that the demand is reported. Answers the epoch to pass to [`RefillState::refilled`].
    pub(crate) fn report(&mut self, now: Instant) -> u64 {
        self.quiet_until = Some(now + REFILL_TIMEOUT);
        self.added = 0;
        self.epoch
    }

    /// Records the end of a refill: all tasks that were ready at `epoch` were sent (`complete`), or only as many as
    /// there was room for.
    pub(crate) fn refilled(&mut self, epoch: u64, complete: bool, now: Instant) {
        if complete && epoch == self.epoch {
            self.lacking = false;
        }
        let added_nothing = self.lacking && self.added == 0;
        self.quiet_until = added_nothing.then(|| now + PAUSE_AFTER_EMPTY_REFILL);
    }
}
