//! The events of a test in their true order.

mod queue;
mod store;

use std::{
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::{Reason, Schedule, StateKind, Task, TaskId, Timestamp, Token, Verb};
use tokio::time::Instant;

pub use self::{queue::RecordingQueue, store::RecordingStore};

/// An event of a test.
#[derive(Clone, Debug)]
pub enum HistoryEvent {
    /// A client is about to send a submit.
    SubmitSent {
        /// The id of the task.
        id: TaskId,
    },
    /// The submit of a client was acknowledged.
    SubmitAcked {
        /// The task.
        id: TaskId,
    },
    /// User code began.
    RunStarted {
        /// The host of the executor.
        host: usize,
        /// The task.
        id: TaskId,
        /// The token of the assignment.
        token: Token,
        /// The number of the run.
        attempt: u32,
    },
    /// User code returned.
    RunEnded {
        /// The host of the executor.
        host: usize,
        /// The task.
        id: TaskId,
        /// The token of the assignment.
        token: Token,
        /// Whether the run succeeded.
        success: bool,
    },
    /// A run was stopped before its user code began. The executor cannot tell that and may report an outcome.
    RunStopped {
        /// The task.
        id: TaskId,
        /// The token of the assignment.
        token: Token,
    },
    /// The store accepted a write; entries of this kind are in store order.
    Stored {
        /// The verb of the event; `None` for a create.
        verb: Option<Verb>,
        /// The time by the writer's clock.
        now: Timestamp,
        /// The task after the write.
        task: Box<Task>,
    },
    /// The store refused an event.
    Refused {
        /// The verb of the event.
        verb: Verb,
        /// The task.
        id: TaskId,
        /// The task's state.
        state: StateKind,
        /// Why.
        reason: Reason,
    },
    /// The store recognised a repeated write.
    Repeated {
        /// The verb of the event; `None` for a create.
        verb: Option<Verb>,
        /// The task.
        id: TaskId,
    },
    /// The store accepted a write of a schedule; entries of this kind and of tasks are in store order.
    ScheduleStored {
        /// The schedule after the write.
        schedule: Box<Schedule>,
    },
    /// The record of a finished task arrived at its sink.
    Delivered {
        /// The task.
        id: TaskId,
        /// The end of the task that the record shows.
        finished_at: Timestamp,
    },
    /// A message was sent.
    MessageSent {
        /// The task of the message.
        id: TaskId,
        /// The token of the message.
        token: Token,
    },
    /// A message was acknowledged.
    MessageDeleted {
        /// The task of the message.
        id: TaskId,
        /// The token of the message.
        token: Token,
    },
    /// A disruption by the test.
    Note(&'static str),
}

/// An event and its true time.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// The true time.
    pub at: Timestamp,
    /// The event.
    pub event: HistoryEvent,
}

/// Collects events in their order. Clones write into the same history.
#[derive(Clone, Debug)]
pub struct EventHistory {
    base: Timestamp,
    started: Instant,
    entries: Arc<Mutex<Vec<HistoryEntry>>>,
}

impl EventHistory {
    /// An empty history. The true time starts at `base` and follows tokio's clock.
    pub fn new(base: Timestamp) -> Self {
        let (started, entries) = (Instant::now(), Arc::default());
        Self {
            base,
            started,
            entries,
        }
    }

    /// The true time.
    pub fn now(&self) -> Timestamp {
        self.base.after(self.started.elapsed())
    }

    /// Adds an event.
    pub fn record(&self, event: HistoryEvent) {
        let at = self.now();
        self.lock().push(HistoryEntry { at, event });
    }

    /// All entries so far.
    pub fn entries(&self) -> Vec<HistoryEntry> {
        self.lock().clone()
    }

    /// A hash of all entries; equal histories have equal fingerprints.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = HashWriter(DefaultHasher::new());
        for entry in self.lock().iter() {
            // Writing into a hash cannot fail.
            let _ = writeln!(hash, "{entry:?}");
        }
        hash.0.finish()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HistoryEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hashes the text that is written to it.
struct HashWriter(DefaultHasher);

impl fmt::Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
