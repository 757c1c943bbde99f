//! How long tasks waited for their first run, from the history of a world.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::{JobName, TaskId, Timestamp};
use dueline_testkit::{EventHistory, HistoryEvent};

/// How long one task waited for its first run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartDelay {
    /// The task.
    pub id: TaskId,
    /// Its job.
    pub job: JobName,
    /// When the task was due, or when it was submitted if that is later.
    pub due_at: Timestamp,
    /// Time from `due_at` to the first start of user code; `None` if it never started.
    pub delay: Option<Duration>,
}

/// The start delay of each task, in the order of task ids.
pub fn start_delays(history: &EventHistory) -> Vec<StartDelay> {
    let mut delays: BTreeMap<TaskId, StartDelay> = BTreeMap::new();
    for entry in history.entries() {
        match &entry.event {
            HistoryEvent::Stored {
                verb: None, task, ..
            } => {
                let delay = StartDelay {
                    id: task.id,
                    job: task.job.clone(),
                    due_at: task.run_at.max(entry.at),
                    delay: None,
                };
                delays.insert(task.id, delay);
            }
            HistoryEvent::RunStarted { id, .. } => {
                if let Some(start) = delays.get_mut(id) {
                    start.delay.get_or_insert(entry.at.since(start.due_at));
                }
            }
            _ => {}
        }
    }
    delays.into_values().collect()
}
