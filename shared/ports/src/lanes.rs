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
    /// Only lanes after this one, by name; `None` from the first one.
    pub after: Option<Arc<str>>,
    /// Most lanes to return, and about how many tasks.
    pub tasks_max: usize,
    /// The shards to read; `None` for all of them. The lanes of a job belong to its first shard.
    pub share: Option<Share>,
}

impl LaneQuery {
    /// Lanes that are examined for each task that is asked for, so that a call is bounded where most lanes have no due task.
    const LANES_PER_TASK: usize = 4;

    /// Most lanes that a call examines.
    pub const fn lanes_max(&self) -> usize {
        self.tasks_max.saturating_mul(Self::LANES_PER_TASK)
    }

    /// Most tasks of each of so many lanes that are returned.
    pub fn tasks_per_lane(&self, lanes: usize) -> usize {
        self.tasks_max.div_ceil(lanes.max(1)).max(1)
    }

    /// Whether the share covers the lanes of the job.
    pub fn is_covered(&self) -> bool {
        let share = self.share.as_ref();
        share.is_none_or(|share| share.covers(&self.job, 0))
    }
}

/// Lanes with due tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LanePage {
    /// The lanes that have due tasks, by name.
    pub lanes: Vec<Lane>,
    /// The last lane that was examined; the next page begins behind it. `None` if there are no lanes behind these.
    pub end: Option<Arc<str>>,
    /// Whether a lane may have more due tasks than were returned.
    pub has_more: bool,
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
