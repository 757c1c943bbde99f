//! The calls about schedules.

use async_trait::async_trait;
use dueline_domain::{JobName, Schedule, ScheduleName};
use dueline_ports::{
    DueSchedulesPage, DueSchedulesQuery, PutSchedule, ScheduleQuery, ScheduleStore, StoreError,
};

use super::{FaultyStore, StoreMethod};

#[async_trait]
impl ScheduleStore for FaultyStore {
    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        let mut results = Vec::with_capacity(puts.len());
        // Each put is a request of its own, as it is in DynamoDB.
        for put in puts {
            let call = || async {
                let mut results = self.inner.put_schedules(vec![put.clone()]).await;
                results.pop().unwrap_or(Err(StoreError::Throttled))
            };
            results.push(self.call_one(StoreMethod::PutSchedules, call).await);
        }
        results
    }

    async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError> {
        let call = || self.inner.schedule(job, name);
        self.call_one(StoreMethod::Schedule, call).await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        let call = || self.inner.schedules(query.clone());
        self.call_one(StoreMethod::Schedules, call).await
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        // Consumers poll all the time, also where there are no schedules. A poll draws a fault only if there is one to
        // repeat, so that worlds without schedules are as they would be without these polls.
        let page = self.inner.due_schedules(query.clone()).await?;
        if page.schedules.is_empty() {
            return Ok(page);
        }
        let call = || self.inner.due_schedules(query.clone());
        let mut page = self.call_one(StoreMethod::DueSchedules, call).await?;
        let rates = self.faults.due;
        page.schedules
            .retain(|_| !self.happens("due schedule late", rates.late));
        for schedule in &mut page.schedules {
            let key = (schedule.job.clone(), schedule.name.clone());
            let mut earlier = self.earlier_schedules();
            let before = earlier.insert(key, schedule.clone());
            let before = before.filter(|before| before.write != schedule.write);
            if let Some(before) = before
                && self.happens("due schedule read before its change", rates.moved)
            {
                *schedule = before;
            }
        }
        Ok(page)
    }

    async fn delete_schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        let call = || self.inner.delete_schedule(job, name);
        self.call_one(StoreMethod::DeleteSchedule, call).await
    }
}
