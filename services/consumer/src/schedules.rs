//! Carries out schedules: creates the tasks of their firings.
//!
//! A schedule is read, its tasks are created, and then the schedule is stored as it is afterwards, unless another process
//! has changed it. The id of a task follows from the schedule and the nominal time, so a turn that is interrupted, or that
//! two consumers take at once, creates each task once.

use std::time::Duration;

use dueline_api::check;
use dueline_domain::{
    Event, Firing, FiringEnd, FiringRecord, FiringTask, Job, RunningCancel, Schedule, Timestamp,
};
use dueline_ports::{Command, Create, DueSchedulesQuery, PutSchedule, StoreError};
use dueline_runtime::{Shutdown, log_transition};
use dueline_schedule::{FiringStatus, Rule, ScheduleKey, Turn};
use dueline_trace::Began;
use futures_util::{StreamExt as _, stream};

use crate::{Config, Deps, backoffs::backoff, members::CurrentShare};

/// Most schedules of one poll.
const PAGE_MAX: usize = 1_000;
/// Schedules that are carried out at once.
const AT_ONCE: usize = 64;
/// Most tasks of one call of the store.
const BATCH_MAX: usize = 500;
/// Most tries of a turn that meets other changes of its schedule. The next poll tries again.
const TRIES_MAX: usize = 3;

/// Carries out schedules until the intake is stopped.
pub(crate) async fn run(config: Config, deps: Deps, share: CurrentShare, shutdown: Shutdown) {
    let mut failures = 0;
    loop {
        let pause = match poll(&config, &deps, &share).await {
            Ok(pause) => {
                failures = 0;
                pause
            }
            Err(error) => {
                failures += 1;
                let pause = backoff(config.poll_period, failures);
                tracing::warn!(%error, failures, ?pause, "failed to carry out schedules");
                pause
            }
        };
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Carries out the schedules that are due. Returns the time until the next poll.
async fn poll(config: &Config, deps: &Deps, share: &CurrentShare) -> Result<Duration, StoreError> {
    let now = deps.clock.now();
    let page = deps
        .store
        .due_schedules(DueSchedulesQuery {
            now,
            limit: PAGE_MAX,
            share: share.get(),
        })
        .await?;
    let turns = page
        .schedules
        .into_iter()
        .map(|schedule| Box::pin(take_turn(deps, schedule)));
    let mut turns = stream::iter(turns).buffer_unordered(AT_ONCE);
    let (mut failure, mut next_at) = (None, page.next_at);
    while let Some(turn) = turns.next().await {
        match turn {
            Ok(wake_at) => next_at = next_at.into_iter().chain(wake_at).min(),
            Err(error) => failure = Some(error),
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    if page.more {
        return Ok(Duration::ZERO);
    }
    let until_next = next_at.map(|at| at.since(deps.clock.now()));
    Ok(until_next.map_or(config.poll_period, |wait| wait.min(config.poll_period)))
}

/// Carries out one schedule, and returns when it has to be processed next. The result is an error only if a later try may
/// succeed.
async fn take_turn(deps: &Deps, schedule: Schedule) -> Result<Option<Timestamp>, StoreError> {
    let (job, name) = (schedule.job.clone(), schedule.name.clone());
    let mut created = Vec::new();
    let mut read = Some(schedule);
    for _ in 0..TRIES_MAX {
        let Some(mut schedule) = read else {
            return Ok(None);
        };
        // Tasks of a try that lost against another change count as those of earlier firings.
        for nominal_at in &created {
            if !schedule.active.contains(nominal_at) {
                schedule.active.push(*nominal_at);
            }
        }
        if let TurnEnd::Stored(wake_at) = try_turn(deps, schedule, &mut created).await? {
            return Ok(wake_at);
        }
        read = deps.store.schedule(&job, &name).await?;
    }
    Ok(None)
}

/// How a try of a turn ended.
enum TurnEnd {
    /// The schedule is stored as it is after the turn, and has to be processed at this time.
    Stored(Option<Timestamp>),
    /// Another process has changed the schedule in the meantime.
    Changed,
}

/// One try of a turn. Adds the nominal times of the tasks to `created`.
async fn try_turn(
    deps: &Deps,
    schedule: Schedule,
    created: &mut Vec<Timestamp>,
) -> Result<TurnEnd, StoreError> {
    let Some(job) = deps.store.job(&schedule.job).await? else {
        return Ok(TurnEnd::Stored(None));
    };
    let seen = Some(schedule.write);
    let mut after = match Rule::parse(&schedule.spec.rule) {
        Ok(rule) => {
            let active = statuses(deps, &schedule, &job).await?;
            let now = deps.clock.now();
            let Some(mut turn) = Turn::of(&schedule, &rule, now, &active) else {
                return Ok(TurnEnd::Stored(schedule.wake_at()));
            };
            cancel(deps, &schedule, &turn).await?;
            create(deps, &schedule, &mut turn, created).await?;
            record(&schedule, &turn.after);
            turn.after
        }
        // Written by another version, whose rules this one does not know.
        Err(error) => unreadable(&schedule, &error.to_string(), deps.clock.now()),
    };
    after.write = deps.rng.write_id();
    let wake_at = after.wake_at();
    let put = PutSchedule {
        schedule: after,
        seen,
    };
    let mut results = deps.store.put_schedules(vec![put]).await;
    match results.pop() {
        // The job is being deleted.
        None | Some(Err(StoreError::NotFound { .. })) => Ok(TurnEnd::Stored(None)),
        Some(Ok(true)) => Ok(TurnEnd::Stored(wake_at)),
        Some(Ok(false)) => Ok(TurnEnd::Changed),
        Some(Err(error)) => Err(error),
    }
}

/// What became of the tasks of the active firings.
async fn statuses(
    deps: &Deps,
    schedule: &Schedule,
    job: &Job,
) -> Result<Vec<FiringStatus>, StoreError> {
    let key = key(schedule);
    let now = deps.clock.now();
    let mut statuses = Vec::with_capacity(schedule.active.len());
    for nominal_at in &schedule.active {
        let task = deps
            .store
            .get(&schedule.job, &key.task_id(*nominal_at))
            .await?;
        let retention = job.policy.retention;
        let may_be_pruned = retention.is_some_and(|kept| nominal_at.after(kept) <= now);
        statuses.push(match task {
            Some(task) if task.kind().is_final() => FiringStatus::Ended,
            Some(_) => FiringStatus::Unfinished,
            None if may_be_pruned => FiringStatus::Ended,
            None => FiringStatus::Missing,
        });
    }
    Ok(statuses)
}

async fn cancel(deps: &Deps, schedule: &Schedule, turn: &Turn) -> Result<(), StoreError> {
    if turn.cancel.is_empty() {
        return Ok(());
    }
    let reason = format!("replaced by a later firing of schedule '{}'", schedule.name);
    let commands = turn.cancel.iter().map(|id| Command {
        job: schedule.job.clone(),
        id: *id,
        event: Event::Cancel {
            running: RunningCancel::Request,
            reason: Some(reason.as_str().into()),
        },
        write: deps.rng.write_id(),
    });
    let now = deps.clock.now();
    let effects = deps.effects();
    let results = effects.apply(&*deps.store, now, commands.collect()).await;
    for result in results {
        match result {
            Ok(applied) => log_transition(None, &applied.task),
            // It has ended in the meantime.
            Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates the tasks of a turn. A task that is refused is recorded in the turn; the schedule goes on.
async fn create(
    deps: &Deps,
    schedule: &Schedule,
    turn: &mut Turn,
    created: &mut Vec<Timestamp>,
) -> Result<(), StoreError> {
    let tasks = std::mem::take(&mut turn.create);
    for batch in tasks.chunks(BATCH_MAX) {
        let (mut creates, mut firings) = (Vec::new(), Vec::new());
        for firing in batch {
            match request(deps, schedule, firing) {
                Ok(create) => {
                    creates.push(create);
                    firings.push(firing.nominal_at);
                }
                Err(why) => turn.refused(firing.nominal_at, &why),
            }
        }
        let began = Began::now();
        let results = deps.store.create(deps.clock.now(), creates).await;
        let mut fresh = Vec::new();
        for (nominal_at, result) in firings.into_iter().zip(results) {
            match result {
                Ok(result) => {
                    created.push(nominal_at);
                    fresh.extend((!result.existed).then_some(result.task));
                }
                // It was created before, from another template.
                Err(StoreError::Exists(_)) => created.push(nominal_at),
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => turn.refused(nominal_at, &error.to_string()),
            }
        }
        for task in &fresh {
            log_transition(None, task);
        }
        let fresh = fresh.iter().map(|task| &**task);
        deps.effects().perform(fresh, began).await;
    }
    Ok(())
}

fn request(deps: &Deps, schedule: &Schedule, firing: &FiringTask) -> Result<Create, String> {
    let template = schedule.spec.template.clone();
    let mut task = check::firing_task(&schedule.job, template, firing.id, firing.due_at);
    check::new_task(&mut task).map_err(|error| error.message().to_owned())?;
    let options = task.options.get_or_insert_default();
    let by = &schedule.created_by;
    options.created_by = (!by.is_empty()).then(|| by.clone());
    options.firing = Some(Firing {
        schedule: schedule.name.clone(),
        nominal_at: firing.nominal_at,
    });
    Ok(Create {
        task,
        token: deps.rng.token(),
        write: deps.rng.write_id(),
        may_enqueue: true,
        claim_for: None,
    })
}

/// A schedule whose rule cannot be read does nothing until its rule is replaced.
fn unreadable(schedule: &Schedule, why: &str, now: Timestamp) -> Schedule {
    tracing::error!(job.name = %schedule.job, schedule.name = %schedule.name, why, "unreadable rule");
    let nominal_at = schedule.next_at.unwrap_or(now);
    let mut after = Schedule {
        next_at: None,
        queued: None,
        triggers: Vec::new(),
        backfills: Vec::new(),
        changed_at: schedule.changed_at.max(now),
        ..schedule.clone()
    };
    after.record(FiringRecord {
        first: nominal_at,
        last: nominal_at,
        count: 1,
        end: FiringEnd::Failed,
        info: format!("the rule cannot be read: {why}").into(),
    });
    after
}

/// Logs and counts what a turn has done.
fn record(before: &Schedule, after: &Schedule) {
    let (job, name) = (&after.job, &after.name);
    let counts = [
        ("created", before.counts.created, after.counts.created),
        ("missed", before.counts.missed, after.counts.missed),
        ("skipped", before.counts.skipped, after.counts.skipped),
        ("failed", before.counts.failed, after.counts.failed),
        ("repaired", before.counts.repaired, after.counts.repaired),
    ];
    for (end, before, after) in counts {
        let count = after.saturating_sub(before);
        if count == 0 {
            continue;
        }
        let label = job.as_str().to_owned();
        metrics::counter!("dueline_firings_total", "job" => label, "end" => end).increment(count);
        match end {
            "repaired" => tracing::warn!(
                job.name = %job, schedule.name = %name, count,
                "tasks of firings were missing and are created again"
            ),
            "missed" | "failed" => tracing::warn!(
                job.name = %job, schedule.name = %name, count, "firings {end}"
            ),
            _ => tracing::debug!(job.name = %job, schedule.name = %name, count, "firings {end}"),
        }
    }
}

const fn key(schedule: &Schedule) -> ScheduleKey<'_> {
    ScheduleKey {
        job: &schedule.job,
        name: &schedule.name,
    }
}
