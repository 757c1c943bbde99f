//! `take_places`: places of jobs that limit how many of their tasks run at once. The counts of states say how many do, and an
//! index how many of one lane.

use dueline_domain::StateKind;
use dueline_ports::{Places, RunningCounts, StoreError, TakePlaces};
use rusqlite::Connection;

use super::{ItemError, Writer};

impl Writer {
    pub(crate) fn take_places(&mut self, take: &TakePlaces) -> Result<Places, ItemError> {
        let Some(entry) = self.jobs.get(&take.job) else {
            return Err(StoreError::no_job(&take.job).into());
        };
        let row = entry.row;
        let count = |is_counted: &dyn Fn(StateKind) -> bool| {
            usize::try_from(self.counts.sum(row, is_counted)).unwrap_or(usize::MAX)
        };
        let counts = RunningCounts {
            in_flight: count(&StateKind::is_in_flight),
            enqueued: count(&|kind| kind == StateKind::Enqueued),
        };
        let mut failed = None;
        let db = &self.db;
        let in_lane = |lane: &str| {
            running_in_lane(db, row, lane).unwrap_or_else(|error| {
                failed = Some(error);
                usize::MAX
            })
        };
        let places = self.places.take_places(take, counts, in_lane);
        failed.map_or(Ok(places), |error| Err(error.into()))
    }
}

/// How many tasks of a lane are enqueued or owned.
fn running_in_lane(db: &Connection, job: i64, lane: &str) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "SELECT count(*) FROM task INDEXED BY task_lane_running \
         WHERE job = ?1 AND lane = ?2 AND trigger_at IS NOT NULL AND state <> 0",
    )?
    .query_row((job, lane), |row| row.get(0))
}
