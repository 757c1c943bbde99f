//! Submits from inside a run: the task is staged until the run ends. A later run of the same task that submits it again takes
//! it over, whatever became of it.

use std::collections::BTreeMap;

use dueline_api::{ApiError, ErrorReason, operation::Submitted};
use dueline_domain::{Adopt, Due, Event, FromRun, Modification, NewTask, StateKind, Task};
use dueline_ports::Command;
use dueline_runtime::log_transition;

use super::{Inner, families::Answers, revive::check_notified};

fn run_of(task: &NewTask) -> Option<&FromRun> {
    task.family()?.from_run.as_ref()
}

impl Inner {
    /// Marks each run from inside which tasks are submitted. Tasks of a run that has ended are refused.
    pub(super) async fn stage_runs(&self, tasks: &[NewTask], answers: &mut Answers) {
        let mut runs = BTreeMap::new();
        for (number, task) in tasks.iter().enumerate() {
            if let Some(run) = run_of(task) {
                let numbers: &mut Vec<usize> =
                    runs.entry((&run.task, run.token.get())).or_default();
                numbers.push(number);
            }
        }
        for ((from, _), numbers) in runs {
            let run = numbers.first().and_then(|number| run_of(&tasks[*number]));
            let Some(run) = run else { continue };
            if let Err(error) = self.deps.families().stage(from, run.token).await {
                let error = ApiError::from(error).with_field("from_run");
                for number in numbers {
                    if answers[number].is_none() {
                        answers[number] = Some(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Stages a task for a later run that an earlier run of the same task had staged. Any other task keeps its refusal.
    pub(super) async fn adopt(
        &self,
        task: &NewTask,
        refused: ApiError,
    ) -> Result<Submitted, ApiError> {
        let Some(run) = run_of(task).filter(|_| *refused.reason() == ErrorReason::Exists) else {
            return Err(refused);
        };
        let found = self.find_stored(task).await;
        let Some(found) = found.filter(|found| found.is_submitted_again(task)) else {
            return Err(refused);
        };
        let seen = found.family().and_then(|family| family.from_run.as_ref());
        let (Some(seen), Some(family)) = (seen.map(|seen| seen.token), task.family()) else {
            return Err(refused);
        };
        // Only a run that has not ended may take it over from the one that was read.
        self.deps.families().stage(&run.task, run.token).await?;
        check_notified(&found)?;
        if found.kind() == StateKind::Cancelled {
            self.reopen_parents(&found).await?;
        }
        let command = Command {
            job: found.job.clone(),
            id: found.id,
            event: Event::Adopt(Box::new(Adopt {
                seen,
                family: family.clone(),
                change: change(task, &found),
            })),
            write: self.deps.rng.write_id(),
        };
        let now = self.deps.clock.now();
        let mut results = self.deps.store.apply(now, vec![command]).await;
        let adopted = match results.pop() {
            Some(applied) => *applied?.task,
            None => return Err(refused),
        };
        log_transition(Some(found.kind()), &adopted);
        // The submit was counted as refused.
        self.repeated.increment(1);
        Ok(Submitted {
            state: adopted.kind(),
            job: adopted.job,
            id: adopted.id,
            run_at: adopted.run_at,
            existed: true,
            replaced: false,
        })
    }
}

/// What the later submit sets anew. A submit without a time keeps that of the first.
fn change(task: &NewTask, found: &Task) -> Modification {
    let run_at = match task.due {
        Due::Now | Due::After(_) => None,
        Due::At(time) => Some(time).filter(|time| *time != found.run_at),
    };
    Modification {
        run_at,
        priority: Some(task.priority),
        weight: Some(task.weight),
        payload: Some(task.payload.clone()),
    }
}
