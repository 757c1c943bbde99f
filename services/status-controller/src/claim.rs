//! Messages become owned tasks.

use dueline_api::{ApiError, Assignment};
use dueline_domain::{Claim, Event, TaskRef, Timestamp, WorkerId};
use dueline_ports::{Applied, Command, StoreError};
use tokio::time::Instant;

use crate::{
    StatusController,
    definitions::Definitions,
    heartbeats::{RunKey, Writing, Written},
    metrics,
};

/// A claim on its way to the store.
struct Claiming<'a> {
    command: Command,
    writing: Option<Writing<'a>>,
}

impl StatusController {
    pub(crate) async fn claim_all(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        // Read first: a task must not be claimed for a worker that then cannot be told how to run it.
        let names = messages.iter().map(|message| &message.job);
        let definitions = self.definitions(names).await;
        let mut refused: Vec<Option<ApiError>> = Vec::with_capacity(messages.len());
        let mut commands = Vec::with_capacity(messages.len());
        let mut writings = Vec::with_capacity(messages.len());
        for message in messages {
            match definitions.of(&message.job) {
                Some(Ok(_)) => {
                    refused.push(None);
                    let claiming = self.claiming(worker, message, start);
                    commands.push(claiming.command);
                    writings.push(claiming.writing);
                }
                Some(Err(error)) => refused.push(Some(error.clone().into())),
                None => refused.push(Some(ApiError::unavailable("definition was not read"))),
            }
        }
        let (sent, now) = (Instant::now(), self.deps.clock.now());
        let results = self.deps.store.apply(now, commands).await;
        let mut results = results.into_iter().zip(writings);
        let answers = refused.into_iter().map(|refused| {
            if let Some(error) = refused {
                return Err(error);
            }
            let Some((result, writing)) = results.next() else {
                return Err(ApiError::unavailable("store gave no answer for a claim"));
            };
            self.assign(result, writing, &definitions, (sent, now))
        });
        let answers: Vec<_> = answers.collect();
        metrics::count_claims(&answers);
        answers
    }

    fn claiming(&self, worker: &WorkerId, message: TaskRef, start: bool) -> Claiming<'_> {
        let is_remembered = start && self.config.heartbeats_coalesced;
        let writing = is_remembered.then(|| {
            self.heartbeats.write(RunKey {
                id: message.id,
                token: message.token,
                job: message.job.clone(),
            })
        });
        let claim = Claim {
            token: message.token,
            worker: worker.clone(),
            // Otherwise the run begins when an executor begins it, which may be a while after the claim.
            start,
        };
        let command = Command {
            job: message.job,
            id: message.id,
            event: Event::Claim(claim),
            write: self.deps.rng.write_id(),
        };
        Claiming { command, writing }
    }

    /// The answer for one claim.
    fn assign(
        &self,
        result: Result<Applied, StoreError>,
        writing: Option<Writing<'_>>,
        definitions: &Definitions,
        (sent, now): (Instant, Timestamp),
    ) -> Result<Assignment, ApiError> {
        let task = result?.task;
        let Some(Ok(job)) = definitions.of(&task.job) else {
            return Err(StoreError::no_job(&task.job).into());
        };
        if let (Some(writing), Some(token)) = (writing, task.state.token()) {
            let interval = self.config.interval;
            writing.keep(Written::of(&task, &job.policy, token, sent, now, interval));
        }
        Assignment::of(*task, job)
            .ok_or_else(|| ApiError::unavailable("store gave no lease for a claim"))
    }
}
