//! The part of the store seam that reads waiting tasks by lane, for jobs whose fairness keys take turns.

use std::sync::Arc;

use dueline_domain::{JobName, Timestamp};

use crate::{DueTask, Share};

/// Which lanes of a job to read. A lane is the waiting tasks of one fairness key.
#[derive(Clone, Debug)]
pub struct LaneQuery {
    /// The job.
    pub job: JobName,
    /// Trigger times up to this have passed.
    pub now: Timestamp,
    /// Only lanes after this one, in the order that the store has; `None` from the first one.
    pub after: Option<Arc<str>>,
    /// Most lanes to return, and most tasks.
    pub tasks_max: usize,
    /// The shards to read; `None` for all of them.
    pub share: Option<Share>,
}

impl LaneQuery {
    /// How many tasks of each of so many lanes are returned.
    pub fn tasks_per_lane(&self, lanes: usize) -> usize {
        self.tasks_max.div_ceil(lanes.max(1)).max(1)
    }
}

/// Lanes with due tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LanePage {
    /// The lanes in their order. A lane without due tasks may be among them.
    pub lanes: Vec<Lane>,
    /// Whether there are no lanes after these.
    pub is_last: bool,
    /// The earliest trigger time of a waiting task that has not passed, as far as it was read.
    pub next_at: Option<Timestamp>,
}

/// A lane with due tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Its name: the fairness key, or the empty text for tasks without one.
    pub name: Arc<str>,
    /// Its first due tasks, by priority and then oldest first.
    pub tasks: Vec<DueTask>,
}
