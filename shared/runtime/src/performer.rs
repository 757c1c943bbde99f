//! Does the advisory effects of transitions, in one way for every service.

use std::fmt;

use dueline_domain::{Effects, StateKind, Task, Timestamp};
use dueline_ports::{Applied, Command, StoreError, TaskQueue, TaskStore, send_enqueued};
use dueline_trace::Began;

use crate::{DueSignal, EndSignal};

/// What the advisory effects of a process need: the queue, and its signals.
#[derive(Clone, Copy)]
pub struct Performer<'a> {
    /// Receives the messages of enqueued tasks.
    pub queue: &'a dyn TaskQueue,
    /// Wakes the consumer of this process.
    pub due: &'a DueSignal,
    /// Wakes the calls of this process that wait for the end of a task.
    pub ended: &'a EndSignal,
}

impl fmt::Debug for Performer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Performer").finish_non_exhaustive()
    }
}

impl Performer<'_> {
    /// Applies `commands` and then does the effects of those that succeeded. A repetition does them, too: the process
    /// that wrote the first may have died before. Results are in the order of the commands.
    pub async fn apply(
        &self,
        store: &dyn TaskStore,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let began = Began::now();
        let results = store.apply(now, commands).await;
        let moved = results.iter().filter_map(|result| result.as_ref().ok());
        self.perform(moved.map(|applied| &*applied.task), began)
            .await;
        results
    }

    /// Does the effects of the transitions that led to `tasks`, whose writes began at `began`.
    pub async fn perform<'t>(&self, tasks: impl Iterator<Item = &'t Task> + Clone, began: Began) {
        let mut any_to_send = false;
        for task in tasks.clone() {
            let Effects {
                send,
                wake_at,
                ended,
            } = task.effects();
            any_to_send |= send;
            if ended {
                self.ended.ended(&task.id);
            }
            if ended || task.kind() == StateKind::Retriable {
                self.due.place_freed(&task.job);
            }
            if let Some(at) = wake_at {
                self.due.announce(at);
            }
        }
        if any_to_send {
            send_enqueued(self.queue, tasks, began).await;
        }
    }
}
