//! Messages become owned tasks.

use std::sync::Arc;

use dueline_api::{ApiError, Assignment};
use dueline_domain::{Claim, Event, Job, JobName, TaskRef, WorkerId};
use dueline_ports::{Command, StoreError};

use crate::{StatusController, metrics};

/// The definitions that one call needs, each read once. A call's messages rarely belong to more than a few jobs.
struct Definitions(Vec<(JobName, Result<Arc<Job>, StoreError>)>);

impl Definitions {
    fn of(&self, name: &JobName) -> Option<&Result<Arc<Job>, StoreError>> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, job)| job)
    }
}

impl StatusController {
    pub(crate) async fn claim_all(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
    ) -> Vec<Result<Assignment, ApiError>> {
        // Read first: a task must not be claimed for a worker that then cannot be told how to run it.
        let definitions = self.definitions(&messages).await;
        let mut refused: Vec<Option<ApiError>> = Vec::with_capacity(messages.len());
        let mut commands = Vec::with_capacity(messages.len());
        for message in messages {
            if let Some(Err(error)) = definitions.of(&message.job) {
                refused.push(Some(error.clone().into()));
            } else {
                refused.push(None);
                commands.push(self.claim_command(worker, message));
            }
        }
        let now = self.deps.clock.now();
        let mut results = self.deps.store.apply(now, commands).await.into_iter();
        let answers = refused.into_iter().map(|refused| match refused {
            Some(error) => Err(error),
            None => assign(results.next(), &definitions),
        });
        let answers: Vec<_> = answers.collect();
        metrics::count_claims(&answers);
        answers
    }

    async fn definitions(&self, messages: &[TaskRef]) -> Definitions {
        let mut definitions = Definitions(Vec::new());
        for message in messages {
            let name = &message.job;
            if definitions.of(name).is_none() {
                let job = self.deps.store.job(name).await;
                let job = job.and_then(|job| job.ok_or_else(|| StoreError::no_job(name)));
                definitions.0.push((name.clone(), job));
            }
        }
        definitions
    }

    fn claim_command(&self, worker: &WorkerId, message: TaskRef) -> Command {
        let claim = Claim {
            token: message.token,
            worker: worker.clone(),
            // The run begins when an executor begins it, which may be a while after the claim.
            start: false,
        };
        Command {
            job: message.job,
            id: message.id,
            event: Event::Claim(claim),
            write: self.deps.rng.write_id(),
        }
    }
}

/// The answer for one claim.
fn assign(
    result: Option<Result<dueline_ports::Applied, StoreError>>,
    definitions: &Definitions,
) -> Result<Assignment, ApiError> {
    let Some(result) = result else {
        return Err(ApiError::unavailable("store gave no answer for a claim"));
    };
    let task = result?.task;
    match definitions.of(&task.job) {
        Some(Ok(job)) => Assignment::of(*task, job)
            .ok_or_else(|| ApiError::unavailable("store gave no lease for a claim")),
        _ => Err(StoreError::no_job(&task.job).into()),
    }
}
