//! Schedules: records that create tasks of a job by a rule.
//!
//! These are the data alone. The crate `dueline-schedule` decides when a rule fires and what a schedule does next.

mod catch_up;
mod overlap;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

pub use self::{
    catch_up::{CatchUp, CatchUpError, CatchUpPolicy},
    overlap::{Overlap, OverlapDecision, UnfinishedFirings},
};
use crate::{JobName, Priority, ScheduleName, TaskId, TaskOptions, Timestamp, Weight, WriteId};

/// A rule as it is written and stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSpec {
    /// A cron expression of five or six fields, a name such as `@daily`, or `@every DURATION`.
    pub timing: String,
    /// The IANA time zone of a cron expression; UTC without one.
    pub zone: Option<String>,
    /// The rule does not fire before this time.
    pub start: Option<Timestamp>,
    /// The rule does not fire at or after this time.
    pub end: Option<Timestamp>,
    /// A time at which an interval fires, which sets its phase; 1970-01-01T00:00:00Z without one.
    pub anchor: Option<Timestamp>,
}

/// What the tasks of a schedule have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskTemplate {
    /// Urgency.
    pub priority: Priority,
    /// Weight.
    pub weight: Weight,
    /// The handler's input.
    pub payload: Bytes,
    /// Fields that most tasks leave empty. A key is not among them, because it would be the same for all tasks.
    pub options: Option<Box<TaskOptions>>,
}

impl TaskTemplate {
    /// Longest payload. It is part of the schedule, and stores may pay for all of that with each firing.
    pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
}

/// What a user sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleSpec {
    /// A description for people.
    pub info: Arc<str>,
    /// When it fires.
    pub rule: RuleSpec,
    /// The task of a firing is due up to this much later than the firing, and always before the next one.
    pub jitter: Duration,
    /// What happens to missed firings.
    pub catch_up: CatchUpPolicy,
    /// What happens to a firing while tasks of earlier firings are unfinished.
    pub overlap: Overlap,
    /// How many times the rule fires; `None` for no limit.
    pub firings_max: Option<u64>,
    /// The task of each firing.
    pub template: TaskTemplate,
}

/// A schedule, with everything that is stored of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The job whose tasks it creates.
    pub job: JobName,
    /// Its name, unique within the job.
    pub name: ScheduleName,
    /// What the user has set.
    pub spec: ScheduleSpec,
    /// Set while the rule does not fire.
    pub paused: Option<SchedulePause>,
    /// All firings of the rule up to this time are decided.
    pub decided_until: Timestamp,
    /// The next firing of the rule; `None` when it does not fire again.
    pub next_at: Option<Timestamp>,
    /// Nominal times of the latest firings whose tasks were unfinished when they were last read.
    pub active: Vec<Timestamp>,
    /// A firing that waits until the active ones have ended.
    pub queued: Option<QueuedFiring>,
    /// Firings that users have requested, by the time of the request.
    pub triggers: Vec<Timestamp>,
    /// Ranges of time whose firings users have requested.
    pub backfills: Vec<Backfill>,
    /// Counts of firings.
    pub counts: FiringCounts,
    /// The latest firings, oldest first.
    pub recent: Vec<FiringRecord>,
    /// The client that created the schedule, as the client named itself.
    pub created_by: Arc<str>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// The name of the latest write.
    pub write: WriteId,
}

/// Why a schedule does not fire, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulePause {
    /// Since when.
    pub at: Timestamp,
    /// The client that paused it, as the client named itself.
    pub by: Arc<str>,
    /// Why, in its words.
    pub reason: Arc<str>,
}

/// A firing that waits until the tasks of earlier ones have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedFiring {
    /// Its nominal time.
    pub nominal_at: Timestamp,
    /// When a consumer has to read those tasks again.
    pub check_at: Timestamp,
}

/// A range of nominal times whose firings are to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backfill {
    /// Firings before this are done.
    pub from: Timestamp,
    /// Where the range ends; not part of it.
    pub to: Timestamp,
}

/// How many firings a schedule has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiringCounts {
    /// Firings of the rule that were carried out or queued. The limit of firings is about these.
    pub fired: u64,
    /// Tasks created, also for requested firings.
    pub created: u64,
    /// Firings that no consumer carried out in time and that are not made up for.
    pub missed: u64,
    /// Firings skipped because of the overlap policy.
    pub skipped: u64,
    /// Firings whose task was refused.
    pub failed: u64,
    /// Tasks that were created again because they were missing from the store.
    pub repaired: u64,
}

/// What became of one firing, or of several in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiringRecord {
    /// Nominal time of the first.
    pub first: Timestamp,
    /// Nominal time of the last.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
    /// What became of them.
    pub end: FiringEnd,
    /// Why, where that is not clear from `end`.
    pub info: Arc<str>,
}

/// What became of a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FiringEnd {
    /// Its task was created.
    Created,
    /// It was missed, and is not made up for.
    Missed,
    /// It was skipped because of the overlap policy.
    Skipped,
    /// It was due while the schedule was paused.
    Paused,
    /// It waited, and was dropped by a change of the schedule.
    Dropped,
    /// Its task was refused.
    Failed,
}

impl FiringEnd {
    /// All ends.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Missed,
        Self::Skipped,
        Self::Paused,
        Self::Dropped,
        Self::Failed,
    ];

    /// The name on the wire and in stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Missed => "missed",
            Self::Skipped => "skipped",
            Self::Paused => "paused",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }

    /// The end of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.name() == name)
    }
}

/// The firing that created a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The schedule, of the task's job.
    pub schedule: ScheduleName,
    /// The nominal time.
    pub nominal_at: Timestamp,
}

/// A task that a schedule has to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiringTask {
    /// The nominal time of the firing.
    pub nominal_at: Timestamp,
    /// The id of its task.
    pub id: TaskId,
    /// When the task is due.
    pub due_at: Timestamp,
}

impl Schedule {
    /// Most firings that are kept in `recent`.
    pub const RECENT_MAX: usize = 10;
    /// Most firings that are followed until their tasks have ended.
    pub const ACTIVE_MAX: usize = 8;
    /// Most firings that wait because users have requested them.
    pub const TRIGGERS_MAX: usize = 16;
    /// Most ranges that wait because users have requested them.
    pub const BACKFILLS_MAX: usize = 4;
    /// Longest jitter.
    pub const JITTER_MAX: Duration = Duration::from_secs(86_400);

    /// When a consumer has to process the schedule; `None` while it has nothing to do.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let next_at = self.next_at.filter(|_| self.paused.is_none());
        let requested = !self.triggers.is_empty() || !self.backfills.is_empty();
        let requested_at = requested.then_some(self.changed_at);
        let check_at = self.queued.map(|queued| queued.check_at);
        [next_at, check_at, requested_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Adds a record to `recent`. Firings of the same kind in a row are one record, unless a task was created.
    pub fn record(&mut self, record: FiringRecord) {
        if let Some(last) = self.recent.last_mut()
            && last.end == record.end
            && last.info == record.info
            && record.end != FiringEnd::Created
        {
            last.last = record.last;
            last.count = last.count.saturating_add(record.count);
            return;
        }
        self.recent.push(record);
        let excess = self.recent.len().saturating_sub(Self::RECENT_MAX);
        self.recent.drain(..excess);
    }
}
