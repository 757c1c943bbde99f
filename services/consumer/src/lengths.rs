//! How long queues are. Asking a queue may cost a request over the network, so an answer is good for a while.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::JobName;
use tokio::time::Instant;

/// A queue with this many visible messages is taken to be healthy and slow, not lossy: messages are then not sent
/// again, unless their tasks stand in the way of others.
const HEALTHY_DEPTH: u64 = 1_000;
/// How long a queue counts as long: nothing of it is to be sent again, so nothing is lost by being late.
const LONG_FOR: Duration = Duration::from_secs(5);
/// How long it counts as anything else.
const SHORT_FOR: Duration = Duration::from_secs(1);

/// What a queue says of the messages that seem to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// It has none of them.
    Empty,
    /// It may have some of them.
    Short,
    /// It just has not come to them.
    Long,
    /// It is gone and cannot be made.
    Missing,
}

impl Length {
    pub(crate) const fn of(visible: u64) -> Self {
        match visible {
            0 => Self::Empty,
            HEALTHY_DEPTH.. => Self::Long,
            _ => Self::Short,
        }
    }
}

/// What queues have said lately.
#[derive(Debug, Default)]
pub(crate) struct Lengths(BTreeMap<JobName, (Length, Instant)>);

impl Lengths {
    /// Forgets what is old.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (_, until)| now < *until);
    }

    /// What the queue has said, if it did so lately.
    pub(crate) fn get(&self, job: &JobName) -> Option<Length> {
        self.0.get(job).map(|(length, _)| *length)
    }

    /// Takes note of an answer.
    pub(crate) fn note(&mut self, job: JobName, length: Length, now: Instant) {
        let good_for = match length {
            Length::Long | Length::Missing => LONG_FOR,
            Length::Empty | Length::Short => SHORT_FOR,
        };
        self.0.insert(job, (length, now + good_for));
    }
}
