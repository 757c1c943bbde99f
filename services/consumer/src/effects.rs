//! Does the durable effects that finished tasks owe: notifies the tasks that wait for them, and delivers their records to
//! the sinks of their jobs.
//!
//! The scan finds the tasks and offers them here; a loop of its own does the effects, so that a sink that hangs delays
//! neither the scan nor the sinks of other jobs. Nothing of this is stored but what the tasks owe: a task whose delivery
//! is interrupted is due all the same, and is delivered again.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_api::v1::TaskView;
use dueline_domain::{EdgeKind, Effect, Event, Job, JobName, Owed, Settle, Task};
use dueline_ports::{Command, DueTask, SinkFailure, SinkRecord, StoreError};
use dueline_runtime::Shutdown;
use futures_util::{StreamExt as _, stream, stream::FuturesUnordered};
use tokio::{sync::Notify, time::Instant};

use crate::Deps;

/// Jobs whose records are delivered at once. Each has one delivery at a time.
const JOBS_AT_ONCE: usize = 16;
/// Most records of one delivery.
const BATCH_MAX: usize = 64;
/// Most records of a delivery that finds out whether a sink is up again. More than one, because the sink may refuse the
/// record of a single task.
const PROBE_MAX: usize = 4;
/// Tasks of one job that notify their families at once.
const NOTIFIES_AT_ONCE: usize = 16;
/// Tasks of one job that are read at once.
const READS_AT_ONCE: usize = 8;

/// The tasks that the scan has offered, and the jobs that it need not offer at present.
#[derive(Debug, Default)]
pub(crate) struct EffectsIntake {
    state: Mutex<IntakeState>,
    offered: Notify,
}

#[derive(Debug, Default)]
struct IntakeState {
    waiting: BTreeMap<JobName, Vec<DueTask>>,
    /// The job whose delivery began last: jobs take turns.
    last: Option<JobName>,
    delivering: BTreeSet<JobName>,
    pauses: BTreeMap<JobName, Pause>,
}

/// A job whose sink takes no record at present.
#[derive(Debug)]
struct Pause {
    until: Instant,
    failures: u32,
}

impl EffectsIntake {
    fn lock(&self) -> MutexGuard<'_, IntakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many tasks of each job a scan should offer: the limit of all jobs, and lower ones of some.
    pub(crate) fn limits(&self, now: Instant) -> (usize, BTreeMap<JobName, usize>) {
        let state = self.lock();
        let pauses = state.pauses.iter().map(|(job, pause)| {
            let limit = if now < pause.until { 0 } else { PROBE_MAX };
            (job.clone(), limit)
        });
        let mut limits: BTreeMap<_, _> = pauses.collect();
        limits.extend(state.delivering.iter().map(|job| (job.clone(), 0)));
        (BATCH_MAX, limits)
    }

    /// Offers tasks that owe an effect. Those of a job in delivery are dropped; the next scan finds them again.
    pub(crate) fn offer(&self, owed: Vec<DueTask>) {
        let mut by_job: BTreeMap<JobName, Vec<DueTask>> = BTreeMap::new();
        for task in owed {
            by_job.entry(task.job.clone()).or_default().push(task);
        }
        let mut state = self.lock();
        by_job.retain(|job, _| !state.delivering.contains(job));
        if by_job.is_empty() {
            return;
        }
        state.waiting.extend(by_job);
        drop(state);
        self.offered.notify_one();
    }

    /// The next job in turn with its tasks. The job is in delivery from now on.
    fn next(&self) -> Option<(JobName, Vec<DueTask>)> {
        let mut state = self.lock();
        let state = &mut *state;
        let after = state
            .last
            .as_ref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let turn = state
            .waiting
            .range::<JobName, _>((after, Bound::Unbounded))
            .next();
        let turn = turn.or_else(|| state.waiting.first_key_value());
        let job = turn.map(|(job, _)| job.clone())?;
        let tasks = state.waiting.remove(&job)?;
        state.last = Some(job.clone());
        state.delivering.insert(job.clone());
        Some((job, tasks))
    }

    /// Ends a delivery. A job of which nothing could be delivered is paused.
    fn ended(&self, result: &BatchResult, deps: &Deps) {
        let mut state = self.lock();
        state.delivering.remove(&result.job);
        let was_down = state.pauses.contains_key(&result.job);
        match &result.error {
            Some(error) if result.done == 0 => {
                let pause = state.pauses.entry(result.job.clone()).or_insert(Pause {
                    until: Instant::now(),
                    failures: 0,
                });
                let wait = Owed::backoff(pause.failures, deps.rng.jitter());
                pause.failures = pause.failures.saturating_add(1);
                pause.until = Instant::now() + wait;
                if !was_down {
                    tracing::warn!(job.name = %result.job, %error, "sink takes no records");
                }
            }
            _ if result.done > 0 && state.pauses.remove(&result.job).is_some() => {
                tracing::info!(job.name = %result.job, "sink takes records again");
            }
            _ => {}
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of jobs")]
        metrics::gauge!("dueline_sinks_down").set(state.pauses.len() as f64);
    }
}

/// The result of one delivery.
struct BatchResult {
    job: JobName,
    /// Deliveries that are done and settled.
    done: usize,
    /// Tasks that have notified their families, and have settled that.
    notified: usize,
    /// An error of the store or the sink, if there was one.
    error: Option<String>,
}

/// Delivers what is offered until the intake is stopped.
pub(crate) async fn run(deps: Deps, intake: Arc<EffectsIntake>, shutdown: Shutdown) {
    let mut batches = FuturesUnordered::new();
    loop {
        while batches.len() < JOBS_AT_ONCE
            && let Some((job, tasks)) = intake.next()
        {
            batches.push(Box::pin(batch(&deps, job, tasks)));
        }
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            Some(result) = batches.next(), if !batches.is_empty() => {
                intake.ended(&result, &deps);
                if result.done + result.notified > 0 {
                    // More tasks of this job may have waited for the end of this delivery.
                    deps.due.announce(deps.clock.now());
                }
            }
            () = intake.offered.notified() => {}
        }
    }
}

/// Delivers the records of one job, and settles what its tasks owe.
async fn batch(deps: &Deps, job: JobName, due: Vec<DueTask>) -> BatchResult {
    let (mut done, mut notified, mut error) = (0, 0, None);
    match deliver(deps, &job, due, &mut error).await {
        Ok(commands) => {
            let now = deps.clock.now();
            let is_done: Vec<_> = commands.iter().map(done_effect).collect();
            let results = deps.effects().apply(&*deps.store, now, commands).await;
            for (is_done, result) in is_done.into_iter().zip(results) {
                match result {
                    Ok(_) => match is_done {
                        Some(Effect::Deliver) => done += 1,
                        Some(_) => notified += 1,
                        None => {}
                    },
                    // Another consumer was faster, or the task was redriven.
                    Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {}
                    Err(failed) => error = Some(failed.to_string()),
                }
            }
        }
        Err(failed) => error = Some(failed.to_string()),
    }
    BatchResult {
        job,
        done,
        notified,
        error,
    }
}

/// The effect that a command settles as done.
fn done_effect(command: &Command) -> Option<Effect> {
    match &command.event {
        Event::Settle(settle) if settle.failed.is_none() => Some(settle.effect),
        _ => None,
    }
}

/// Delivers the records of the tasks that still owe one, and returns what settles them.
async fn deliver(
    deps: &Deps,
    job: &JobName,
    due: Vec<DueTask>,
    error: &mut Option<String>,
) -> Result<Vec<Command>, StoreError> {
    let Some(job) = deps.store.job(job).await? else {
        return Ok(Vec::new());
    };
    let mut owing = read_owing(deps, due).await?;
    let in_family = owing.extract_if(.., |task| first_effect(task) != Some(Effect::Deliver));
    let in_family: Vec<_> = in_family.collect();
    let mut commands = Vec::new();
    // At once, since each is a write or two of its own: the children of one parent often end together.
    let notifying = in_family
        .into_iter()
        .map(|task| Box::pin(notify_family(deps, task)));
    let mut notifying = stream::iter(notifying).buffer_unordered(NOTIFIES_AT_ONCE);
    while let Some(settled) = notifying.next().await {
        match settled {
            Ok(settled) => commands.extend(settled),
            // It is owed as before, and tried again with the next scan.
            Err(failed) => *error = Some(failed.to_string()),
        }
    }
    drop(notifying);
    if owing.is_empty() {
        return Ok(commands);
    }
    let count = |result: &'static str, count: usize| {
        let job = job.name.as_str().to_owned();
        metrics::counter!("dueline_deliveries_total", "job" => job, "result" => result)
            .increment(count as u64);
    };
    let Some(sink) = &job.policy.sink else {
        // The job had a sink when these tasks ended, and has none any more.
        count("released", owing.len());
        let released = owing
            .iter()
            .map(|task| settle(deps, task, Effect::Deliver, None));
        commands.extend(released);
        return Ok(commands);
    };
    let (mut delivered, mut records) = (Vec::new(), Vec::new());
    let first_delivery = commands.len();
    for task in owing {
        match record(&task, &job) {
            Ok(record) => {
                records.push(record);
                delivered.push(task);
            }
            Err(failure) => {
                commands.push(settle(deps, &task, Effect::Deliver, Some(failure)));
            }
        }
    }
    if !records.is_empty() {
        let results = deps.sinks.deliver(sink, records).await;
        let settled = delivered.iter().zip(results);
        commands.extend(
            settled.map(|(task, result)| settle(deps, task, Effect::Deliver, result.err())),
        );
    }
    let deliveries = &commands[first_delivery..];
    let failed = deliveries
        .iter()
        .filter(|command| done_effect(command).is_none());
    if let Some(Event::Settle(Settle {
        failed: Some((text, _)),
        ..
    })) = failed.clone().map(|command| &command.event).next()
    {
        *error = Some(text.to_string());
    }
    let failed = failed.count();
    count("failed", failed);
    count("delivered", deliveries.len() - failed);
    Ok(commands)
}

/// Does the first effect that a finished task owes to its family, and returns what settles it.
async fn notify_family(deps: &Deps, task: Task) -> Result<Option<Command>, StoreError> {
    let families = deps.families();
    let effect = first_effect(&task);
    let task = match effect {
        None | Some(Effect::Deliver) => return Ok(None),
        Some(Effect::Staged) => {
            families.end_runs(&task.address()).await?;
            Some(task)
        }
        Some(Effect::Children) => {
            families.notify_all(EdgeKind::Child, &task).await?;
            // All of them may have ended before this run did.
            families.close(&task.address()).await?.0
        }
        Some(Effect::Release) => {
            families.notify_all(EdgeKind::Follower, &task).await?;
            Some(task)
        }
        Some(Effect::Leave) => {
            families.leave(&task).await?;
            Some(task)
        }
        Some(Effect::Close) => {
            let parent = task.address();
            let repairs = families.check_children(&parent).await?;
            let (task, closed) = families.close(&parent).await?;
            if closed || repairs > 0 {
                tracing::warn!(
                    job.name = %parent.job, task.id = %parent.id, repairs, closed,
                    "children had ended without a notification of their parent"
                );
                let repairs = repairs.max(usize::from(closed)) as u64;
                metrics::counter!("dueline_family_repairs_total").increment(repairs);
            }
            if closed {
                return Ok(None);
            }
            task
        }
    };
    let (Some(task), Some(effect)) = (task, effect) else {
        return Ok(None);
    };
    // A family that is still open is checked again later.
    let failed = (effect == Effect::Close).then(|| SinkFailure::new("children are open"));
    Ok(owes(&task, effect).then(|| settle(deps, &task, effect, failed)))
}

/// What a task has to cause next.
fn first_effect(task: &Task) -> Option<Effect> {
    let owed = task.owed.as_ref();
    owed.and_then(|owed| owed.effects.first().copied())
}

fn owes(task: &Task, effect: Effect) -> bool {
    let owed = task.owed.as_ref();
    owed.is_some_and(|owed| owed.effects.contains(&effect))
}

/// Reads which of the tasks still owe an effect that is due.
async fn read_owing(deps: &Deps, due: Vec<DueTask>) -> Result<Vec<Task>, StoreError> {
    let now = deps.clock.now();
    let is_due = move |task: &Task| {
        task.owed
            .as_ref()
            .is_some_and(|owed| owed.trigger_at <= now)
    };
    let reads = due.into_iter().map(|due| {
        Box::pin(async move {
            let task = deps.store.get(&due.job, &due.id).await?;
            Ok::<_, StoreError>(task.filter(is_due))
        })
    });
    let reads: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
    let found = reads.into_iter().filter_map(Result::transpose);
    found.collect()
}

fn record(task: &Task, job: &Job) -> Result<SinkRecord, SinkFailure> {
    let json = TaskView::record(task, &job.policy);
    let json = json.map_err(|error| SinkFailure::new(error.to_string()))?;
    Ok(SinkRecord {
        job: task.job.clone(),
        id: task.id,
        finished_at: task.finished_at.unwrap_or(task.changed_at),
        json: json.into(),
    })
}

fn settle(deps: &Deps, task: &Task, effect: Effect, failed: Option<SinkFailure>) -> Command {
    let failed = failed.map(|SinkFailure(error)| (error, deps.rng.jitter()));
    Command {
        job: task.job.clone(),
        id: task.id,
        event: Event::Settle(Settle {
            seen: task.write,
            effect,
            failed,
        }),
        write: deps.rng.write_id(),
    }
}
