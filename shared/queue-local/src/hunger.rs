//! Whether a bounded queue lacks messages that the store has.

use std::time::Duration;

use tokio::time::Instant;

/// A caller that was told of hunger and then fell silent is assumed dead after this.
const ANSWER_HOLDS: Duration = Duration::from_secs(5);
/// Pause after a refill that brought nothing new, so that a store full of what the queue has already causes no
/// endless refilling.
const FRUITLESS_PAUSE: Duration = Duration::from_secs(1);

/// What a queue knows about messages it does not have.
#[derive(Debug)]
pub(crate) struct Hunger {
    /// Whether the store may have messages that the queue lacks.
    lacking: bool,
    /// Grows with every message refused or pushed out.
    epoch: u64,
    /// Not to be told of before this: somebody is refilling, or has just done so in vain. Only set while something
    /// is lacking, because only then do those who wait know of it.
    quiet_until: Option<Instant>,
    /// Messages taken in since somebody was last told.
    added: usize,
}

impl Hunger {
    /// Of a new queue: the process may have restarted, and the store may hold tasks that were handed on before.
    pub(crate) const fn unknown() -> Self {
        Self {
            lacking: true,
            epoch: 0,
            quiet_until: None,
            added: 0,
        }
    }

    /// A message was refused or pushed out.
    pub(crate) const fn missed(&mut self) {
        self.lacking = true;
        self.epoch += 1;
    }

    /// A message was taken in.
    pub(crate) const fn added(&mut self) {
        self.added += 1;
    }

    /// Whether messages may be lacking at all.
    pub(crate) const fn is_lacking(&self) -> bool {
        self.lacking
    }

    /// Whether somebody may be told now.
    pub(crate) fn may_tell(&self, now: Instant) -> bool {
        self.lacking && self.quiet_until.is_none_or(|until| until <= now)
    }

    /// When somebody may be told again, if that is later than now.
    pub(crate) fn quiet_until(&self, now: Instant) -> Option<Instant> {
        self.quiet_until
            .filter(|until| self.lacking && *until > now)
    }

    /// Somebody is told; the epoch to give back with [`Hunger::refilled`].
    pub(crate) fn tell(&mut self, now: Instant) -> u64 {
        self.quiet_until = Some(now + ANSWER_HOLDS);
        self.added = 0;
        self.epoch
    }

    /// Everything that was ready at `epoch` has been sent again, or as much as there was room for.
    pub(crate) fn refilled(&mut self, epoch: u64, complete: bool, now: Instant) {
        if complete && epoch == self.epoch {
            self.lacking = false;
        }
        let in_vain = self.lacking && self.added == 0;
        self.quiet_until = in_vain.then(|| now + FRUITLESS_PAUSE);
    }
}
