//! A small frontend in memory that really does what it is asked.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::{ApiError, Frontend, Submitted};
use dueline_domain::{
    Event, Job, JobName, Modification, NewTask, RunningCancel, Task, TaskId, Timestamp, Token,
    WriteId, apply,
};
use dueline_ports::{JobStats, ListQuery, Page, StoreError, WorkerRecord};

use crate::values::at;

#[derive(Default)]
pub(crate) struct MemoryFrontend {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<JobName, Arc<Job>>,
    tasks: BTreeMap<(JobName, TaskId), Task>,
    writes: u64,
}

const NOW: i64 = 1_000_000;

impl State {
    fn write(&mut self) -> WriteId {
        self.writes += 1;
        WriteId::from_random(self.writes)
    }

    fn job(&self, name: &JobName) -> Result<Arc<Job>, StoreError> {
        let job = self.jobs.get(name).cloned();
        job.ok_or_else(|| StoreError::no_job(name))
    }

    fn submit(&mut self, new: NewTask) -> Result<Submitted, StoreError> {
        let job = self.job(&new.job)?;
        let place = (new.job.clone(), new.id);
        let existed = self.tasks.get(&place);
        if existed.is_some_and(|task| !task.is_made_by(&new)) {
            return Err(StoreError::Exists(new.id));
        }
        let existed = existed.is_some();
        let write = self.write();
        let task = self.tasks.entry(place).or_insert_with(|| {
            let token = Token::from_random(write.get());
            new.into_task(&job.policy, at(NOW), token, write, !job.paused)
        });
        Ok(Submitted {
            job: task.job.clone(),
            id: task.id,
            state: task.kind(),
            run_at: task.run_at,
            existed,
        })
    }

    fn apply(&mut self, job: &JobName, id: &TaskId, event: &Event) -> Result<Task, StoreError> {
        let definition = self.job(job)?;
        let write = self.write();
        let task = self.tasks.get_mut(&(job.clone(), *id));
        let task = task.ok_or_else(|| StoreError::no_task(id))?;
        let transition = apply(task, &definition.policy, event, write, at(NOW))?;
        task.advance(transition);
        Ok(task.clone())
    }
}

impl MemoryFrontend {
    fn with<T>(
        &self,
        act: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, ApiError> {
        act(&mut self.state.lock().unwrap()).map_err(ApiError::from)
    }
}

#[async_trait]
impl Frontend for MemoryFrontend {
    async fn put_job(&self, job: Job) -> Result<Arc<Job>, ApiError> {
        self.with(|state| {
            let changed_at = at(NOW);
            let job = Arc::new(Job { changed_at, ..job });
            state.jobs.insert(job.name.clone(), job.clone());
            Ok(job)
        })
    }

    async fn job(&self, name: &JobName) -> Result<Arc<Job>, ApiError> {
        self.with(|state| state.job(name))
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, ApiError> {
        self.with(|state| Ok(state.jobs.values().cloned().collect()))
    }

    async fn pause_job(&self, name: &JobName, paused: bool) -> Result<Arc<Job>, ApiError> {
        let job = self.job(name).await?;
        let job = Job {
            paused,
            ..job.as_ref().clone()
        };
        self.put_job(job).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), ApiError> {
        self.with(|state| {
            state.job(name)?;
            let of = state.tasks.values().filter(|task| task.job == *name);
            let unfinished = of.filter(|task| !task.kind().is_final()).count();
            if unfinished > 0 {
                let text = format!("{unfinished} tasks of '{name}' are not finished");
                return Err(StoreError::Invalid(text.into()));
            }
            state.tasks.retain(|(job, _), _| job != name);
            state.jobs.remove(name);
            Ok(())
        })
    }

    async fn job_stats(&self, name: &JobName) -> Result<JobStats, ApiError> {
        self.with(|state| {
            state.job(name)?;
            let mut stats = JobStats::default();
            for task in state.tasks.values().filter(|task| task.job == *name) {
                *stats.by_state.entry(task.kind()).or_default() += 1;
                let due: Option<Timestamp> = task.state.trigger_at();
                stats.oldest_due_at = stats.oldest_due_at.into_iter().chain(due).min();
            }
            Ok(stats)
        })
    }

    async fn submit(&self, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
        let one = |task| self.with(|state| state.submit(task));
        tasks.into_iter().map(one).collect()
    }

    async fn task(
        &self,
        job: &JobName,
        id: &TaskId,
        _: Option<Duration>,
    ) -> Result<Task, ApiError> {
        self.with(|state| {
            let task = state.tasks.get(&(job.clone(), *id)).cloned();
            task.ok_or_else(|| StoreError::no_task(id))
        })
    }

    async fn tasks(&self, query: ListQuery) -> Result<Page, ApiError> {
        self.with(|state| {
            state.job(&query.job)?;
            let after = query.cursor.as_ref().and_then(|c| TaskId::parse(c).ok());
            let wanted = |task: &&Task| {
                task.job == query.job
                    && after.is_none_or(|after| task.id > after)
                    && (query.states.is_empty() || query.states.contains(&task.kind()))
            };
            let mut tasks: Vec<_> = state.tasks.values().filter(wanted).cloned().collect();
            let more = tasks.len() > query.limit;
            tasks.truncate(query.limit);
            let last = tasks.last().filter(|_| more);
            let next = last.map(|task| Arc::from(task.id.to_string()));
            Ok(Page { tasks, next })
        })
    }

    async fn cancel(
        &self,
        job: &JobName,
        id: &TaskId,
        running: RunningCancel,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        self.with(|state| state.apply(job, id, &Event::Cancel { running, reason }))
    }

    async fn modify(
        &self,
        job: &JobName,
        id: &TaskId,
        change: Modification,
    ) -> Result<Task, ApiError> {
        let token = Token::from_random(77);
        self.with(|state| state.apply(job, id, &Event::Modify { change, token }))
    }

    async fn redrive(&self, job: &JobName, id: &TaskId) -> Result<Task, ApiError> {
        self.with(|state| state.apply(job, id, &Event::Redrive))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, ApiError> {
        Ok(Vec::new())
    }
}
