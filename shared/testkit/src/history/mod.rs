//! What happened, in its true order.

mod queue;
mod store;

use std::{
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::{Reason, StateKind, Task, TaskId, Timestamp, Token, Verb};
use tokio::time::Instant;

pub use self::{queue::RecordingQueue, store::RecordingStore};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum What {
    /// A client is about to submit.
    SubmitSent {
        /// The task it names.
        id: TaskId,
    },
    /// A client was told that its task is stored.
    SubmitAcked {
        /// The task.
        id: TaskId,
    },
    /// User code began.
    RunStarted {
        /// The host it runs on.
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
        /// The host it ran on.
        host: usize,
        /// The task.
        id: TaskId,
        /// The token of the assignment.
        token: Token,
        /// Whether it succeeded.
        success: bool,
    },
    /// A run was stopped on its way to the first line of user code; the one who stopped it cannot know that.
    RunStopped {
        /// The task.
        id: TaskId,
        /// The token of the assignment.
        token: Token,
    },
    /// The store accepted a write; entries of this kind are in store order.
    Stored {
        /// What the write did; `None` for a create.
        verb: Option<Verb>,
        /// The time that the writer told.
        now: Timestamp,
        /// The task after it, write id included.
        task: Box<Task>,
    },
    /// The store turned a move down.
    Refused {
        /// The move.
        verb: Verb,
        /// The task.
        id: TaskId,
        /// The task's state.
        state: StateKind,
        /// Why.
        reason: Reason,
    },
    /// The store recognised a write that it had carried out before.
    Repeated {
        /// What the write did; `None` for a create.
        verb: Option<Verb>,
        /// The task.
        id: TaskId,
    },
    /// A message was sent.
    MessageSent {
        /// The task it refers to.
        id: TaskId,
        /// Its token.
        token: Token,
    },
    /// A message was acknowledged.
    MessageDeleted {
        /// The task it refers to.
        id: TaskId,
        /// Its token.
        token: Token,
    },
    /// What the test did to the world.
    Note(&'static str),
}

/// What happened, and when by the true clock.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The true time.
    pub at: Timestamp,
    /// What happened.
    pub what: What,
}

/// Collects entries in their order. Clones write into the same history.
#[derive(Clone, Debug)]
pub struct History {
    base: Timestamp,
    started: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl History {
    /// An empty history; the true time is `base` now and follows tokio's clock.
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

    /// Adds an entry.
    pub fn record(&self, what: What) {
        let at = self.now();
        self.lock().push(Entry { at, what });
    }

    /// Everything so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// A number that two histories share only if they are equal.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Hash(DefaultHasher::new());
        for entry in self.lock().iter() {
            // Writing into a hash cannot fail.
            let _ = writeln!(hash, "{entry:?}");
        }
        hash.0.finish()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Hash(DefaultHasher);

impl fmt::Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
