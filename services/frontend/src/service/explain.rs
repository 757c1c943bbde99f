//! Why a task is not running: looks for the first fact that holds it up, in the order in which the facts end.

use std::time::Duration;

use dueline_api::{
    ApiError, Call,
    operation::{Cause, ExplainTask, Explanation},
    v1::Time,
};
use dueline_domain::{EdgeKind, FairShare, Job, Lease, Quota, State, StateKind, Task, Timestamp};
use dueline_ports::WorkerRecord;

use super::{Inner, Serve};

/// How long a due task may wait for a scan before the explanation says that no consumer processes it.
const SCAN_GRACE: Duration = Duration::from_secs(3);
/// Most enqueued tasks of a job that are read to find the place of a task among them.
const BACKLOG_READ_MAX: usize = 10_000;

impl Serve for ExplainTask {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Explanation, ApiError> {
        let job = inner.job(&self.job).await?;
        let task = inner.task(&self.job, &self.id).await?;
        let fact = match &task.state {
            State::Waiting { .. } => inner.waiting(&task).await?,
            State::New { due_at: at } | State::Retriable { retry_at: at } => {
                inner.pending(&task, &job, *at).await?
            }
            State::Enqueued { .. } if job.paused => paused(&job),
            State::Enqueued { .. } => inner.enqueued(&task, &job).await?,
            State::Claimed { lease, .. } => claimed(lease),
            State::Processing { lease, .. } => running(&task, lease),
            _ => ended(&task),
        };
        Ok(Explanation {
            state: task.kind(),
            cause: fact.cause,
            message: fact.message,
            release: fact.release,
            until: fact.until,
            ahead: fact.ahead,
        })
    }
}

/// What holds a task up.
struct Fact {
    cause: Cause,
    message: String,
    release: String,
    until: Option<Timestamp>,
    ahead: Option<u64>,
}

impl Fact {
    fn new(cause: Cause, message: impl Into<String>, release: impl Into<String>) -> Self {
        Self {
            cause,
            message: message.into(),
            release: release.into(),
            until: None,
            ahead: None,
        }
    }

    fn until(self, until: Timestamp) -> Self {
        let until = Some(until);
        Self { until, ..self }
    }
}

impl Inner {
    /// A task that waits for others: the first of them that has not ended.
    async fn waiting(&self, task: &Task) -> Result<Fact, ApiError> {
        let mut open = Vec::new();
        if let Some(family) = task.family() {
            let run = family.open_run().map(|run| (EdgeKind::Staged, &run.task));
            let all = run.into_iter().chain(family.open());
            open.extend(all.map(|(kind, other)| match kind {
                EdgeKind::Staged => ("the run of", other),
                EdgeKind::Child => ("its parent", other),
                EdgeKind::Follower => ("its predecessor", other),
            }));
        }
        let Some((word, first)) = open.first() else {
            let message = "what the task has waited for has ended, and it is about to go on";
            return Ok(Fact::new(
                Cause::Waiting,
                message,
                "nothing: a consumer does it",
            ));
        };
        let state = match self.deps.store.get(&first.job, &first.id).await? {
            None => "does not exist any more".to_owned(),
            Some(other) if other.is_open_family() => {
                "has succeeded and waits for its children".to_owned()
            }
            Some(other) => format!("is {}", other.kind()),
        };
        let others = match open.len() - 1 {
            0 => String::new(),
            1 => ", and for another task".to_owned(),
            n => format!(", and for {n} others"),
        };
        let message = format!("the task waits for {word} {first}, which {state}{others}");
        let release =
            format!("the end of that task; dueline task explain {first} says what holds it up");
        Ok(Fact::new(Cause::Waiting, message, release))
    }

    /// A task that is not enqueued yet, or waits for its next try.
    async fn pending(&self, task: &Task, job: &Job, due_at: Timestamp) -> Result<Fact, ApiError> {
        let now = self.deps.clock.now();
        let is_retry = task.kind() == StateKind::Retriable;
        if due_at > now {
            let at = Time::from(due_at);
            let also = if job.paused {
                "; its job is paused, too"
            } else {
                ""
            };
            let update = format!(
                "an earlier time: dueline task update {} --in 0s",
                task.address()
            );
            let fact = if is_retry {
                let error = task.error.as_deref().unwrap_or("no error text");
                let message =
                    format!("the last run failed ({error}), and the next try is at {at}{also}");
                Fact::new(Cause::Retrying, message, format!("that time, or {update}"))
            } else {
                let message = format!("the task is due at {at}{also}");
                Fact::new(Cause::NotDue, message, format!("that time, or {update}"))
            };
            return Ok(fact.until(due_at));
        }
        if job.paused {
            return Ok(paused(job));
        }
        if let Some(fact) = self.limited(job).await? {
            return Ok(fact);
        }
        let late = now.since(due_at);
        if let Some(rate) = job.quota.rate_per_s {
            let message = format!(
                "the task has been due for {}, and job '{}' lets {rate} tasks a second pass",
                seconds(late),
                job.name
            );
            let release = "its turn: due tasks pass by priority and then by time; or a higher rate \
                           (dueline job apply --rate)";
            return Ok(Fact::new(Cause::Rate, message, release));
        }
        if let Some(share) = job.fair_share
            && late > SCAN_GRACE
        {
            return Ok(turn(task, job, share));
        }
        if late <= SCAN_GRACE {
            let message = "the task has just become due, and is about to be enqueued";
            return Ok(Fact::new(
                Cause::NotEnqueued,
                message,
                "nothing: a consumer does it",
            ));
        }
        let message = format!(
            "the task has been due for {}, and no consumer has enqueued it",
            seconds(late)
        );
        let release = "a consumer that runs and can reach the store and the queue: dueline doctor, and the log of \
                       the consumer";
        Ok(Fact::new(Cause::NotEnqueued, message, release))
    }

    /// Whether the job runs as many tasks as it may at once.
    async fn limited(&self, job: &Job) -> Result<Option<Fact>, ApiError> {
        let Quota {
            running_max: Some(max),
            ..
        } = job.quota
        else {
            return Ok(None);
        };
        let stats = self.deps.store.stats(&job.name).await?;
        let running = stats
            .by_state
            .iter()
            .filter(|(kind, _)| kind.is_in_flight());
        let running = running.map(|(_, count)| *count).sum::<u64>();
        Ok((running >= u64::from(max)).then(|| {
            let message = format!(
                "{running} tasks of job '{}' are enqueued or running, and no more than {max} may be",
                job.name
            );
            let release = "the end of one of them, or a higher limit (dueline job apply --running-max)";
            Fact::new(Cause::RunningLimit, message, release)
        }))
    }

    /// A task whose message is in the queue: whether a worker can take it, and how many come first.
    async fn enqueued(&self, task: &Task, job: &Job) -> Result<Fact, ApiError> {
        let runs = |worker: &WorkerRecord| {
            worker.jobs.contains(&job.name) || worker.handlers.contains(&job.handler.kind)
        };
        let workers = self.deps.store.workers().await?;
        let workers = workers.iter().filter(|worker| &*worker.kind == "executor");
        let workers: Vec<_> = workers.filter(|worker| runs(worker)).collect();
        let Some(strongest) = workers.iter().map(|worker| worker.concurrency).max() else {
            let message = format!(
                "no worker is registered that runs tasks of job '{}' (handler {})",
                job.name, job.handler.kind
            );
            let release = "a worker for this job, or one that claims the task by its id; dueline worker list shows the \
                           registered ones";
            return Ok(Fact::new(Cause::NoWorker, message, release));
        };
        let weight = u32::from(task.weight.get());
        if weight > strongest {
            let message = format!(
                "the task weighs {weight}, and the strongest worker of its job has a concurrency of {strongest}"
            );
            let release = format!("a worker with --concurrency {weight} or more");
            return Ok(Fact::new(Cause::TooHeavy, message, release));
        }
        let ready = self.deps.store.ready(&job.name, BACKLOG_READ_MAX).await?;
        let ahead = ready.iter().position(|message| message.id == task.id);
        let slots = workers
            .iter()
            .map(|worker| u64::from(worker.concurrency))
            .sum::<u64>();
        let workers = workers.len();
        let position = match ahead {
            Some(0) => "no enqueued task of its job comes before it".to_owned(),
            Some(1) => "one enqueued task of its job comes before it".to_owned(),
            Some(n) => format!("{n} enqueued tasks of its job come before it"),
            None => format!(
                "at least {} enqueued tasks of its job come before it",
                ready.len()
            ),
        };
        let message = format!(
            "{position}; {workers} registered workers run its job, with room for {slots} at once"
        );
        let release =
            "its turn, a higher priority (dueline task update --priority), or more workers";
        Ok(Fact {
            ahead: Some(ahead.unwrap_or(ready.len()) as u64),
            ..Fact::new(Cause::Backlog, message, release)
        })
    }
}

/// A due task that waits for the turn of its fairness key.
fn turn(task: &Task, job: &Job, share: FairShare) -> Fact {
    let key = match task.lane_name() {
        "" => "without a fairness key".to_owned(),
        key => format!("of the fairness key '{key}'"),
    };
    let limit = share.running_max.map_or_else(String::new, |max| {
        format!(", of which no more than {max} are enqueued or running")
    });
    let message = format!(
        "the task waits for a turn of the tasks {key}{limit}; the keys of job '{}' take turns",
        job.name
    );
    let release = "its turn: the tasks of a key pass by priority and then by time; more or faster workers shorten it";
    Fact::new(Cause::FairShare, message, release)
}

fn paused(job: &Job) -> Fact {
    let message = format!("job '{}' is paused", job.name);
    let release = format!("dueline job resume {}", job.name);
    Fact::new(Cause::Paused, message, release)
}

fn claimed(lease: &Lease) -> Fact {
    let message = format!(
        "worker {} claimed the task at {} and has not begun its run",
        lease.worker,
        Time::from(lease.claimed_at)
    );
    lasting(
        Fact::new(
            Cause::Claimed,
            message,
            "its start, or the end of the claim",
        ),
        lease,
    )
}

fn running(task: &Task, lease: &Lease) -> Fact {
    let since = Time::from(task.started_at.unwrap_or(lease.claimed_at));
    let cancel = match task.cancel_requested {
        true => "; it was asked to stop",
        false => "",
    };
    let message = format!(
        "worker {} has run the task since {since}{cancel}",
        lease.worker
    );
    lasting(
        Fact::new(Cause::Running, message, "nothing: it runs"),
        lease,
    )
}

/// A fact that ends with a lease, unless that is renewed.
fn lasting(fact: Fact, lease: &Lease) -> Fact {
    match lease.never_ends() {
        true => fact,
        false => fact.until(lease.ends_at()),
    }
}

fn ended(task: &Task) -> Fact {
    let kind = task.kind();
    if let Some(owed) = task.owed.as_deref().filter(|owed| owed.failures > 0) {
        let why = owed.error.as_deref().unwrap_or("no error text");
        let message = format!(
            "the task is {kind}, and {} deliveries of its record have failed, the last one with: {why}",
            owed.failures
        );
        let release = "a sink that accepts the record; the next try is made by itself";
        return Fact::new(Cause::Undelivered, message, release).until(owed.trigger_at);
    }
    let error = task.error.as_deref();
    let why = error.map(|error| format!(": {error}")).unwrap_or_default();
    let message = format!("the task is {kind}{why}");
    let release = match kind {
        StateKind::Succeeded => "nothing: it is done".to_owned(),
        StateKind::Failed | StateKind::Trashed => {
            format!("dueline task redrive {}", task.address())
        }
        _ => "a new task: one that was cancelled or dropped does not run again".to_owned(),
    };
    Fact::new(Cause::Ended, message, release)
}

/// A duration to the second.
fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}
