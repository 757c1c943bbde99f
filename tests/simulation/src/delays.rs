//! How long tasks wait, as their history tells it.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::{JobName, TaskId, Timestamp};
use dueline_testkit::{History, What};

/// How one task fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The task.
    pub id: TaskId,
    /// Its job.
    pub job: JobName,
    /// When it was to run, or when it was submitted if that is later.
    pub due_at: Timestamp,
    /// How long after that user code began, for the first time; `None` if it never did.
    pub waited: Option<Duration>,
}

/// How long each task waited, in the order of their ids.
pub fn waits(history: &History) -> Vec<Wait> {
    let mut waits: BTreeMap<TaskId, Wait> = BTreeMap::new();
    for entry in history.entries() {
        match &entry.what {
            What::Stored {
                verb: None, task, ..
            } => {
                let wait = Wait {
                    id: task.id,
                    job: task.job.clone(),
                    due_at: task.run_at.max(entry.at),
                    waited: None,
                };
                waits.insert(task.id, wait);
            }
            What::RunStarted { id, .. } => {
                if let Some(wait) = waits.get_mut(id) {
                    wait.waited.get_or_insert(entry.at.since(wait.due_at));
                }
            }
            _ => {}
        }
    }
    waits.into_values().collect()
}
