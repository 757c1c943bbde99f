//! `take_places`: places of jobs that limit how many of their tasks run at once. The counts of states say how many do.

use dueline_domain::{StateKind, TaskId};
use dueline_ports::{StoreError, TakePlaces};

use super::{ItemError, Writer};

impl Writer {
    pub(crate) fn take_places(&mut self, take: &TakePlaces) -> Result<Vec<TaskId>, ItemError> {
        let Some(entry) = self.jobs.get(&take.job) else {
            return Err(StoreError::no_job(&take.job).into());
        };
        let running = self.counts.sum(entry.row, StateKind::is_in_flight);
        let running = usize::try_from(running).unwrap_or(usize::MAX);
        Ok(self.places.take_places(take, running))
    }
}
