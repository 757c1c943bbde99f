//! The part of the store seam that keeps schedules.

use async_trait::async_trait;
use dueline_domain::{JobName, Schedule, ScheduleName, Timestamp, WriteId};

use crate::{Share, StoreError};

/// Schedules. A write is a compare-and-set on the name of the latest write, so consumers and frontends may change the
/// same schedule.
#[async_trait]
pub trait ScheduleStore: Send + Sync + 'static {
    /// Creates or replaces schedules. The result says whether the schedule was stored: `false` if it has changed since it
    /// was read. A put whose write id is already that of the stored schedule has succeeded before. `NotFound` if the job
    /// does not exist. The puts of one call are independent, and the results are in their order.
    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>>;

    /// One schedule, as of the last acknowledged write.
    async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError>;

    /// Schedules of a job, by name. `NotFound` if the job does not exist.
    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError>;

    /// Schedules that a consumer has to process, those that have waited longest first. May return a schedule that has
    /// changed since, or one whose time has not come.
    async fn due_schedules(&self, query: DueSchedulesQuery)
    -> Result<DueSchedulesPage, StoreError>;

    /// Deletes a schedule. Its tasks stay. Answers whether there was one.
    async fn delete_schedule(&self, job: &JobName, name: &ScheduleName)
    -> Result<bool, StoreError>;
}

/// A schedule to store.
#[derive(Clone, Debug)]
pub struct PutSchedule {
    /// The schedule.
    pub schedule: Schedule,
    /// The latest write of the schedule that this one replaces; `None` if there must be none.
    pub seen: Option<WriteId>,
}

/// Which schedules to list.
#[derive(Clone, Debug)]
pub struct ScheduleQuery {
    /// Of this job.
    pub job: JobName,
    /// Those whose name is greater.
    pub after: Option<ScheduleName>,
    /// Most schedules to return.
    pub limit: usize,
}

/// Which due schedules to read.
#[derive(Clone, Debug)]
pub struct DueSchedulesQuery {
    /// Times up to this have come.
    pub now: Timestamp,
    /// Most schedules to return.
    pub limit: usize,
    /// The share of this consumer; `None` for all of them.
    pub share: Option<Share>,
}

/// Due schedules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DueSchedulesPage {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// Whether more are due.
    pub more: bool,
    /// The earliest time that has not come, or an earlier one.
    pub next_at: Option<Timestamp>,
}
