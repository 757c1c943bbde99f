//! Schedules.

use dueline_api::{
    ApiError, Call, ErrorKind, ErrorReason,
    operation::{
        BackfillSchedule, DeleteSchedule, GetSchedule, ListSchedules, NEXT_DEFAULT, NextFiring,
        PauseSchedule, PutSchedule, SchedulePage, ShownSchedule, TriggerSchedule,
    },
};
use dueline_domain::{Backfill, FiringEnd, JobName, Schedule, ScheduleName, Timestamp};
use dueline_ports::{self as ports, ScheduleQuery, StoreError};
use dueline_schedule::{Change, ChangeError, Rule, RuleError, ScheduleKey};

use super::{Inner, Serve};

/// Most bytes of a page of schedules, in any of its forms.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes of a schedule beside its payload and the details of its tasks.
const SCHEDULE_BYTES: usize = 8 * 1024;

/// Most tries of a change that meets other changes of the same schedule.
const TRIES_MAX: usize = 8;

impl Serve for PutSchedule {
    async fn serve(self, inner: &Inner, call: &Call) -> Result<ShownSchedule, ApiError> {
        let Self { job, name, spec } = self;
        // A rule that is wrong is refused also where the job or the schedule does not exist.
        Rule::parse(&spec.rule).map_err(|error| rule_error(&error))?;
        inner.job(&job).await?;
        let by = call.principal.clone().unwrap_or_default();
        inner
            .change_schedule(&job, &name, |stored, now, write| match stored {
                Some(stored) => Change::Replace(Box::new(spec.clone())).apply(stored, now, write),
                None => Change::create(
                    job.clone(),
                    name.clone(),
                    spec.clone(),
                    by.clone(),
                    now,
                    write,
                ),
            })
            .await
    }
}

impl Serve for GetSchedule {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<ShownSchedule, ApiError> {
        let schedule = inner.schedule(&self.job, &self.name).await?;
        Ok(show(schedule, inner.deps.clock.now(), self.next))
    }
}

impl Serve for ListSchedules {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<SchedulePage, ApiError> {
        let query = ScheduleQuery {
            job: self.job,
            after: self.after,
            limit: self.limit + 1,
        };
        let mut schedules = inner.deps.store.schedules(query).await?;
        let fitting = fitting(&schedules).min(self.limit);
        let has_more = schedules.len() > fitting;
        schedules.truncate(fitting);
        let last = schedules.last().map(|schedule| schedule.name.clone());
        let now = inner.deps.clock.now();
        Ok(SchedulePage {
            schedules: schedules
                .into_iter()
                .map(|schedule| show(schedule, now, 1))
                .collect(),
            next: last.filter(|_| has_more),
        })
    }
}

impl Serve for DeleteSchedule {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<(), ApiError> {
        let Self { job, name } = self;
        if inner.deps.store.delete_schedule(&job, &name).await? {
            return Ok(());
        }
        inner.job(&job).await?;
        Err(StoreError::no_schedule(&name).into())
    }
}

impl Serve for PauseSchedule {
    async fn serve(self, inner: &Inner, call: &Call) -> Result<ShownSchedule, ApiError> {
        let change = if self.paused {
            Change::Pause {
                by: call.principal.clone().unwrap_or_default(),
                reason: self.reason.unwrap_or_default(),
            }
        } else {
            Change::Resume
        };
        inner.change_existing(&self.job, &self.name, change).await
    }
}

impl Serve for TriggerSchedule {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<ShownSchedule, ApiError> {
        inner
            .change_existing(&self.job, &self.name, Change::Trigger)
            .await
    }
}

impl Serve for BackfillSchedule {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<ShownSchedule, ApiError> {
        let Self {
            job,
            name,
            from,
            to,
        } = self;
        let change = Change::Backfill(Backfill { from, to });
        inner.change_existing(&job, &name, change).await
    }
}

impl Inner {
    /// The rule of the only schedule of a job, if it fires again. Reads two schedules at most.
    pub(super) async fn frequency(&self, job: &JobName) -> Result<Option<String>, ApiError> {
        let query = ScheduleQuery {
            job: job.clone(),
            after: None,
            limit: 2,
        };
        let schedules = self.deps.store.schedules(query).await?;
        let [schedule] = &schedules[..] else {
            return Ok(None);
        };
        let fires = schedule.paused.is_none() && schedule.next_at.is_some();
        let rule = &schedule.spec.rule;
        Ok(fires.then(|| match &rule.zone {
            Some(zone) => format!("{} {zone}", rule.timing),
            None => rule.timing.clone(),
        }))
    }

    async fn schedule(&self, job: &JobName, name: &ScheduleName) -> Result<Schedule, ApiError> {
        if let Some(schedule) = self.deps.store.schedule(job, name).await? {
            return Ok(schedule);
        }
        self.job(job).await?;
        Err(StoreError::no_schedule(name).into())
    }

    async fn change_existing(
        &self,
        job: &JobName,
        name: &ScheduleName,
        change: Change,
    ) -> Result<ShownSchedule, ApiError> {
        self.schedule(job, name).await?;
        self.change_schedule(job, name, |stored, now, write| match stored {
            Some(stored) => change.clone().apply(stored, now, write).map(Some),
            // It was deleted since it was read.
            None => Ok(None),
        })
        .await
    }

    /// Reads a schedule, changes it, and stores it unless it has changed in the meantime; then it does so again.
    async fn change_schedule<T: Into<Option<Schedule>>>(
        &self,
        job: &JobName,
        name: &ScheduleName,
        change: impl Fn(Option<Schedule>, Timestamp, dueline_domain::WriteId) -> Result<T, ChangeError>,
    ) -> Result<ShownSchedule, ApiError> {
        let deps = &self.deps;
        for _ in 0..TRIES_MAX {
            let stored = deps.store.schedule(job, name).await?;
            let seen = stored.as_ref().map(|stored| stored.write);
            let (now, write) = (deps.clock.now(), deps.rng.write_id());
            let changed = change(stored, now, write).map_err(|error| change_error(&error))?;
            let Some(schedule) = changed.into() else {
                return Err(StoreError::no_schedule(name).into());
            };
            let put = ports::PutSchedule {
                schedule: schedule.clone(),
                seen,
            };
            let mut results = deps.store.put_schedules(vec![put]).await;
            if results.pop().unwrap_or(Ok(false))? {
                return Ok(show(schedule, now, NEXT_DEFAULT));
            }
        }
        let message = format!("schedule '{name}' is changing too fast; try again");
        Err(ApiError::new(
            ErrorKind::Unavailable,
            ErrorReason::Throttled,
            message,
        ))
    }
}

/// How many of the schedules fit on a page; at least one.
fn fitting(schedules: &[Schedule]) -> usize {
    let mut bytes = 0;
    let fitting = schedules.iter().take_while(|schedule| {
        let template = &schedule.spec.template;
        let options = template.options.as_ref();
        let details = options.and_then(|options| options.details.as_ref());
        // In base64 a payload grows by a third.
        let data = template.payload.len() * 4 / 3 + details.map_or(0, |details| details.len());
        bytes += SCHEDULE_BYTES + data;
        bytes <= PAGE_BYTES_MAX
    });
    fitting.count().max(1)
}

/// A schedule with its next firings and the tasks of its latest ones.
fn show(schedule: Schedule, now: Timestamp, next_max: usize) -> ShownSchedule {
    let key = ScheduleKey {
        job: &schedule.job,
        name: &schedule.name,
    };
    let created = schedule.recent.iter().filter(|record| {
        // The record of a backfill is about many tasks.
        record.end == FiringEnd::Created && record.count == 1
    });
    let nominal = created.map(|record| record.first);
    let tasks = nominal
        .chain(schedule.active.iter().copied())
        .map(|nominal_at| (nominal_at, key.task_id(nominal_at)))
        .collect();
    ShownSchedule {
        next: next_firings(&schedule, now, next_max),
        tasks,
        schedule,
    }
}

fn next_firings(schedule: &Schedule, now: Timestamp, max: usize) -> Vec<NextFiring> {
    // A stored rule that this version cannot read has no firings here; the consumer reports it.
    let (Some(next_at), Ok(rule)) = (schedule.next_at, Rule::parse(&schedule.spec.rule)) else {
        return Vec::new();
    };
    let from = if schedule.paused.is_some() {
        next_at.max(now)
    } else {
        next_at
    };
    let fired = schedule.counts.fired;
    let left = schedule
        .spec
        .firings_max
        .map(|limit| limit.saturating_sub(fired));
    let left = left.map_or(usize::MAX, |left| {
        usize::try_from(left).unwrap_or(usize::MAX)
    });
    let firings = rule.between(from, Timestamp::MAX, max.min(left));
    let shown = firings.times.into_iter().map(|at| NextFiring {
        at,
        local: rule.local_text(at),
    });
    shown.collect()
}

fn rule_error(error: &RuleError) -> ApiError {
    let reason = ErrorReason::from_name(error.reason().name());
    ApiError::invalid(error.field().name(), reason, error.message())
}

fn change_error(error: &ChangeError) -> ApiError {
    match error {
        ChangeError::Rule(error) => rule_error(error),
        ChangeError::EmptyRange => ApiError::invalid("to", ErrorReason::EmptyRange, error),
        ChangeError::NoFiring => ApiError::invalid("from", ErrorReason::NeverFires, error),
        ChangeError::TooManyFirings(_) => ApiError::invalid("to", ErrorReason::TooMany, error),
        ChangeError::TooManyRequests => ApiError::new(
            ErrorKind::Conflict,
            ErrorReason::TooManyRequests,
            error.to_string(),
        ),
    }
}
