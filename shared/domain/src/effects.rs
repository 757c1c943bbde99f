//! Effects: what a transition causes beyond its own task.

use std::{sync::Arc, time::Duration};

use crate::{Backoff, Jitter, State, Task, Timestamp};

/// The advisory effects of a transition: done after its commit, and lost with the process that should do them. The
/// trigger time of the task repairs a loss.
///
/// They depend only on the task as it is after the transition. A command whose answer was lost is repeated, and its
/// repetition finds nothing but that task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The message of the task is sent.
    pub send: bool,
    /// The consumer is woken at this time.
    pub wake_at: Option<Timestamp>,
    /// The calls that wait for the end of the task are woken.
    pub ended: bool,
}

/// A durable effect of a transition: stored with it, and done at least once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The tasks that runs of the finished task have staged go on, or are discarded.
    Staged,
    /// The children of the finished task are notified that its own run is over.
    Children,
    /// The followers of the finished task are notified how it and its children ended.
    Release,
    /// The parent of the finished task is notified that it and its children have ended.
    Leave,
    /// The record of the finished task is delivered to the sink of its job.
    Deliver,
    /// The family of the finished task is closed when all of its children have ended. It is owed until then, so that the
    /// task is kept.
    Close,
}

impl Effect {
    /// All effects.
    pub const ALL: [Self; 6] = [
        Self::Staged,
        Self::Children,
        Self::Release,
        Self::Leave,
        Self::Deliver,
        Self::Close,
    ];

    /// The name on the wire and in stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Children => "children",
            Self::Release => "release",
            Self::Leave => "leave",
            Self::Deliver => "deliver",
            Self::Close => "close",
        }
    }

    /// The effect of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.name() == name)
    }
}

/// The durable effects that a task still owes. They are a part of the task, so the write that ends the task stores them,
/// too. A task that owes is kept beyond its retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    /// What is owed, in the order in which it is done; not empty.
    pub effects: Vec<Effect>,
    /// When the consumer must do it next.
    pub trigger_at: Timestamp,
    /// How many times it has failed.
    pub failures: u32,
    /// Why it last failed.
    pub error: Option<Arc<str>>,
}

impl Owed {
    /// Longest error text.
    pub const ERROR_BYTES_MAX: usize = 500;

    /// What a task owes that ended at `now`; `None` without effects.
    pub(crate) fn new(effects: Vec<Effect>, now: Timestamp) -> Option<Box<Self>> {
        let owed = Self {
            effects,
            trigger_at: now,
            failures: 0,
            error: None,
        };
        (!owed.effects.is_empty()).then(|| Box::new(owed))
    }

    /// The wait after a failure that follows `failures` earlier ones: one second, doubled with each failure up to five
    /// minutes, plus a random part.
    pub fn backoff(failures: u32, jitter: Jitter) -> Duration {
        let (initial, max) = (Duration::from_secs(1), Duration::from_secs(300));
        let backoff = Backoff::new(initial, 2.0, 0.2, max);
        // These numbers are legal.
        backoff.map_or(max, |backoff| backoff.wait(failures, jitter))
    }
}

/// The consumer scans at least this often, so it need not be woken for the ends of longer leases.
const SHORT_LEASE: Duration = Duration::from_secs(1);

impl Task {
    /// The advisory effects of the transition that led to this task.
    pub fn effects(&self) -> Effects {
        let wake_at = match self.state {
            State::New { due_at } => Some(due_at),
            State::Retriable { retry_at } => Some(retry_at),
            State::Claimed { ref lease, .. } | State::Processing { ref lease, .. } => {
                let ends_at = lease.ends_at();
                (ends_at.since(lease.heartbeat_at) < SHORT_LEASE).then_some(ends_at)
            }
            _ => self.owed.as_ref().map(|owed| owed.trigger_at),
        };
        Effects {
            send: matches!(self.state, State::Enqueued { .. }),
            wake_at,
            ended: self.kind().is_final(),
        }
    }

    /// The trigger time: when the consumer must next process the task. A task that is unfinished has one, and so does a
    /// task that owes an effect.
    pub fn trigger_at(&self) -> Option<Timestamp> {
        let owed = self.owed.as_ref().map(|owed| owed.trigger_at);
        self.state.trigger_at().or(owed)
    }
}
