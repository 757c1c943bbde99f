//! Claims the tasks of messages for a worker.

use dueline_api::{ApiError, Assignment};
use dueline_domain::{Claim, Event, TaskRef, Timestamp, WorkerId};
use dueline_ports::{Applied, Command, StoreError};
use dueline_runtime::log_transition;
use tokio::time::Instant;

use crate::{
    StatusControllerService,
    definitions::JobDefinitions,
    lease_cache::{CachedLease, LeaseWrite, RunKey},
    metrics,
    spans::ClaimSpans,
};

/// A claim that is about to be written.
struct PendingClaim<'a> {
    command: Command,
    /// Present when the written lease may be cached.
    lease_write: Option<LeaseWrite<'a>>,
}

impl StatusControllerService {
    pub(crate) async fn claim_all(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        let spans = ClaimSpans::start(worker, &messages);
        // Read before the claim: without the definition, a claimed task could not be returned to its worker.
        let names = messages.iter().map(|message| &message.job);
        let definitions = self.definitions(names).await;
        let mut refused: Vec<Option<ApiError>> = Vec::with_capacity(messages.len());
        let mut commands = Vec::with_capacity(messages.len());
        let mut lease_writes = Vec::with_capacity(messages.len());
        for message in messages {
            match definitions.of(&message.job) {
                Some(Ok(_)) => {
                    refused.push(None);
                    let claim = self.pending_claim(worker, message, start);
                    commands.push(claim.command);
                    lease_writes.push(claim.lease_write);
                }
                Some(Err(error)) => refused.push(Some(error.clone().into())),
                None => refused.push(Some(ApiError::unavailable("job definition was not read"))),
            }
        }
        let (sent, now) = (Instant::now(), self.deps.clock.now());
        let results = self.deps.store.apply(now, commands).await;
        let mut results = results.into_iter().zip(lease_writes);
        let answers = refused.into_iter().map(|refused| {
            if let Some(error) = refused {
                return Err(error);
            }
            let Some((result, lease_write)) = results.next() else {
                return Err(ApiError::unavailable("store did not answer a claim"));
            };
            self.assign(result, lease_write, &definitions, (sent, now))
        });
        let mut answers: Vec<_> = answers.collect();
        self.add_results(&mut answers).await;
        spans.record(&mut answers);
        metrics::count_claims(&answers);
        answers
    }

    fn pending_claim(&self, worker: &WorkerId, message: TaskRef, start: bool) -> PendingClaim<'_> {
        let is_cached = start && self.config.heartbeats_coalesced;
        let lease_write = is_cached.then(|| {
            self.leases.begin_write(RunKey {
                id: message.id,
                token: message.token,
                job: message.job.clone(),
            })
        });
        let claim = Claim {
            token: message.token,
            worker: worker.clone(),
            // Without `start`, the run starts when the executor reports it.
            start,
        };
        let command = Command {
            job: message.job,
            id: message.id,
            event: Event::Claim(claim),
            write: self.deps.rng.write_id(),
        };
        PendingClaim {
            command,
            lease_write,
        }
    }

    /// The answer for one claim.
    fn assign(
        &self,
        result: Result<Applied, StoreError>,
        lease_write: Option<LeaseWrite<'_>>,
        definitions: &JobDefinitions,
        (sent, now): (Instant, Timestamp),
    ) -> Result<Assignment, ApiError> {
        let task = result?.task;
        log_transition(None, &task);
        if let Some(at) = task.effects().wake_at {
            self.deps.due.announce(at);
        }
        let Some(Ok(job)) = definitions.of(&task.job) else {
            return Err(StoreError::no_job(&task.job).into());
        };
        if let (Some(lease_write), Some(token)) = (lease_write, task.state.token()) {
            let interval = self.config.interval;
            lease_write.succeeded(CachedLease::of(
                &task,
                &job.policy,
                token,
                sent,
                now,
                interval,
            ));
        }
        Assignment::of(*task, job)
            .ok_or_else(|| ApiError::unavailable("store returned no lease for a claim"))
    }
}
