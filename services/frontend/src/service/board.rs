//! Claims of chosen tasks, and what their owners say about them.

use std::time::Duration;

use dueline_api::{
    Action, ApiError, Assignment, Call, ErrorKind, ErrorReason, ReportAck,
    operation::{ClaimTask, ClaimedTask, GetLease, ReportTask, ReportedTask, TaskLease, WaitAny},
};
use dueline_domain::{
    ClaimChosen, Event, Job, JobName, Quota, Reason, Rejected, StateKind, TaskAddress, TaskId,
    WorkerId, WriteId,
    hash::{fnv1a, mix64},
};
use dueline_ports::{Command, PlaceRequest, StoreError, TakePlaces};
use tokio::time::{Instant, sleep_until};

use super::{Inner, Serve, read::end_of_wait};

impl Serve for ClaimTask {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<ClaimedTask, ApiError> {
        let rng = &inner.deps.rng;
        let job = inner.job(&self.job).await?;
        if job.paused {
            let message = format!("job '{}' is paused; resume it first", self.job);
            return Err(ApiError::new(
                ErrorKind::Conflict,
                ErrorReason::Paused,
                message,
            ));
        }
        inner.take_place(&job, &self.id).await?;
        let command = Command {
            write: match self.request {
                Some(named) => write_of(named, &self.owner),
                None => rng.write_id(),
            },
            event: Event::ClaimChosen(ClaimChosen {
                token: rng.token(),
                worker: self.owner,
                lifetime: self.lifetime,
            }),
            job: self.job,
            id: self.id,
        };
        let claimed = inner.write(command).await;
        let task = claimed.map_err(|error| refusal(error, None))?;
        let lease = TaskLease::of(&task, inner.deps.clock.now());
        let assignment = Assignment::of(task, &job)
            .ok_or_else(|| ApiError::unavailable("store returned no lease for a claim"))?;
        Ok(ClaimedTask { assignment, lease })
    }
}

/// When a wait for any task reads the store again: at first soon, then less and less often.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));

impl Serve for WaitAny {
    /// Cancel safe.
    async fn serve(self, inner: &Inner, call: &Call) -> Result<Vec<TaskAddress>, ApiError> {
        let until = end_of_wait(call, self.wait);
        let mut look_again = LOOK_AGAIN.0;
        loop {
            let found = inner.claimable(&self.jobs, self.limit).await?;
            let now = Instant::now();
            if !found.is_empty() || now >= until {
                return Ok(found);
            }
            sleep_until(until.min(now + look_again)).await;
            look_again = (look_again * 2).min(LOOK_AGAIN.1);
        }
    }
}

impl Inner {
    /// Takes a place for a task that is claimed without its message, where its job limits how many of its tasks run at once.
    /// A task that is enqueued has a place already.
    async fn take_place(&self, job: &Job, id: &TaskId) -> Result<(), ApiError> {
        if !job.takes_places() {
            return Ok(());
        }
        let limit = job.quota.running_max.unwrap_or(Quota::RUNNING_MAX);
        let lane_limit = job.fair_share.and_then(|share| share.running_max);
        let task = self.task(&job.name, id).await?;
        if !matches!(task.kind(), StateKind::New | StateKind::Retriable) {
            return Ok(());
        }
        let request = PlaceRequest::of(&task).into_iter().collect();
        let now = self.deps.clock.now();
        let take = TakePlaces {
            lane_limit,
            ..TakePlaces::new(job.name.clone(), limit, request, now)
        };
        let places = self.deps.store.take_places(take).await?;
        if !places.granted.is_empty() {
            return Ok(());
        }
        let message = match lane_limit {
            Some(max) if !places.is_full => {
                format!(
                    "the fairness key '{}' has {max} running tasks, the most it may",
                    task.lane_name()
                )
            }
            _ => format!("job '{}' runs {limit} tasks, the most it may", job.name),
        };
        let (kind, reason) = (ErrorKind::Conflict, ErrorReason::RunningLimit);
        Err(ApiError::new(kind, reason, message).with_state(task.kind()))
    }

    /// Tasks that can be claimed now. Those of a paused job cannot be claimed.
    async fn claimable(
        &self,
        jobs: &[JobName],
        limit: usize,
    ) -> Result<Vec<TaskAddress>, ApiError> {
        let mut found = Vec::new();
        for name in jobs {
            if self.job(name).await?.paused || found.len() >= limit {
                continue;
            }
            let ready = self.deps.store.ready(name, limit - found.len()).await?;
            found.extend(ready.into_iter().map(|message| TaskAddress {
                job: message.job,
                id: message.id,
            }));
        }
        Ok(found)
    }
}

impl Serve for GetLease {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<TaskLease, ApiError> {
        let task = inner.task(&self.job, &self.id).await?;
        Ok(TaskLease::of(&task, inner.deps.clock.now()))
    }
}

impl Serve for ReportTask {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<ReportedTask, ApiError> {
        let Self { owner, mut report } = self;
        if let Some(owner) = &owner {
            // A token belongs to one owner for good, so an owner that is another one now is so for this token, too.
            let task = inner.task(&report.job, &report.id).await?;
            if let Some(lease) = task.lease() {
                if lease.worker != *owner {
                    return Err(not_owner(owner, &lease.worker, task.kind()));
                }
                // An owner that has not reported a start has begun with its claim.
                if task.kind() == StateKind::Claimed
                    && let Action::Finish { started_at, .. } = &mut report.action
                {
                    started_at.get_or_insert(lease.claimed_at);
                }
            }
        }
        let extends = matches!(report.action, Action::Extend { .. });
        let written = inner.write(report.into_command(&*inner.deps.rng)).await;
        let now = inner.deps.clock.now();
        let ack = match written {
            Ok(task) => ReportAck::of(&task, now),
            Err(StoreError::Rejected(rejected))
                if owner.is_some() && extends && rejected.state.is_pending() =>
            {
                let ack = ReportAck {
                    state: rejected.state,
                    cancel_requested: false,
                    lease: None,
                };
                return Ok(ReportedTask { ack, done: false });
            }
            Err(error) if owner.is_some() => return Err(refusal(error, owner.as_ref())),
            Err(error) => return Err(error.into()),
        };
        Ok(ReportedTask { ack, done: true })
    }
}

/// The name that a claim is stored under: made of the name that its caller chose and the owner, so that two owners that
/// choose the same name get no claim of each other.
fn write_of(named: WriteId, owner: &WorkerId) -> WriteId {
    let owner = fnv1a(owner.as_str().bytes());
    WriteId::from_random(mix64(named.get() ^ mix64(owner)))
}

/// The refusal as on a board: a task that has ended is not there, and the owner is compared by name where one is known.
fn refusal(error: StoreError, owner: Option<&WorkerId>) -> ApiError {
    let StoreError::Rejected(rejected) = error else {
        return error.into();
    };
    let state = rejected.state;
    match (&rejected.owner, owner) {
        _ if state.is_final() => {
            let message = format!("the task is not on the board any more: it is {state}");
            ApiError::new(ErrorKind::NotFound, ErrorReason::Finished, message).with_state(state)
        }
        (Some(real), Some(owner)) if real != owner => not_owner(owner, real, state),
        (None, Some(_)) => {
            let reason = Reason::NotClaimed;
            StoreError::Rejected(Rejected { reason, ..rejected }).into()
        }
        _ => StoreError::Rejected(rejected).into(),
    }
}

fn not_owner(owner: &WorkerId, real: &WorkerId, state: StateKind) -> ApiError {
    let message = format!("the task is {real}'s, not {owner}'s");
    ApiError::new(ErrorKind::Conflict, ErrorReason::NotOwner, message)
        .with_state(state)
        .with_owner(Some(real.clone()))
}
