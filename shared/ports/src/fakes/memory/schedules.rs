//! Schedules.

use std::ops::Bound;

use async_trait::async_trait;
use dueline_domain::{JobName, Schedule, ScheduleName};

use super::{MemoryStore, state::MemoryContents};
use crate::{
    DueSchedulesPage, DueSchedulesQuery, PutSchedule, ScheduleQuery, ScheduleStore, StoreError,
    schedule_shard,
};

#[async_trait]
impl ScheduleStore for MemoryStore {
    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        let mut contents = self.lock();
        let put = |put| contents.put_schedule(put);
        puts.into_iter().map(put).collect()
    }

    async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError> {
        let contents = self.lock();
        let schedules = contents.schedules.get(job);
        Ok(schedules.and_then(|schedules| schedules.get(name)).cloned())
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        let contents = self.lock();
        contents.job(&query.job)?;
        let Some(schedules) = contents.schedules.get(&query.job) else {
            return Ok(Vec::new());
        };
        let from = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = schedules.range((from, Bound::Unbounded)).take(query.limit);
        Ok(found.map(|(_, schedule)| schedule.clone()).collect())
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        let contents = self.lock();
        let is_mine = |schedule: &Schedule| {
            let shard = schedule_shard(&schedule.job, &schedule.name);
            let share = query.share.as_ref();
            share.is_none_or(|share| share.covers_schedules(shard))
        };
        let all = contents
            .schedules
            .values()
            .flat_map(|by_name| by_name.values());
        let mut by_time: Vec<_> = all
            .filter(|schedule| is_mine(schedule))
            .filter_map(|schedule| Some((schedule.wake_at()?, schedule)))
            .collect();
        by_time.sort_by_key(|(wake_at, _)| *wake_at);
        let due = by_time.partition_point(|(wake_at, _)| *wake_at <= query.now);
        let page = by_time[..due.min(query.limit)].iter();
        Ok(DueSchedulesPage {
            schedules: page.map(|(_, schedule)| (*schedule).clone()).collect(),
            more: due > query.limit,
            next_at: by_time.get(due).map(|(wake_at, _)| *wake_at),
        })
    }

    async fn delete_schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        let mut contents = self.lock();
        let schedules = contents.schedules.get_mut(job);
        Ok(schedules.is_some_and(|schedules| schedules.remove(name).is_some()))
    }
}

impl MemoryContents {
    fn put_schedule(&mut self, put: PutSchedule) -> Result<bool, StoreError> {
        let PutSchedule { schedule, seen } = put;
        self.job(&schedule.job)?;
        let schedules = self.schedules.entry(schedule.job.clone()).or_default();
        let stored = schedules.get(&schedule.name).map(|stored| stored.write);
        if stored == Some(schedule.write) {
            return Ok(true);
        }
        if stored != seen {
            return Ok(false);
        }
        schedules.insert(schedule.name.clone(), schedule);
        Ok(true)
    }
}
