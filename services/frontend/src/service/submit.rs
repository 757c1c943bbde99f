//! Storing tasks: store first, then send.

use std::sync::Arc;

use dueline_api::{ApiError, Assignment, ErrorKind, Reservation, Submitted};
use dueline_domain::{NewTask, State, StateKind, Task, TaskId, limits};
use dueline_ports::{Create, Created, StoreError, hand_on};

use super::Inner;

/// The error of a submit. One that met another task by its key says so.
fn refusal(error: StoreError, id: &TaskId, key: Option<&str>) -> ApiError {
    match (&error, key) {
        (StoreError::Exists(other), Some(key)) if other != id => {
            let message =
                format!("the key '{key}' is taken: task {other} has it, with other content");
            ApiError::new(ErrorKind::Conflict, "exists", message).with_field("key")
        }
        _ => error.into(),
    }
}

impl Inner {
    /// Hands a task that was born claimed to its worker. A task of an earlier submit, or one that its job held back,
    /// is not: dropping the reservation lets the worker go on waiting.
    async fn deliver(&self, reserved: Box<dyn Reservation>, created: &Created) {
        let owner = created.task.lease().map(|lease| &lease.worker);
        if created.existed || owner != Some(reserved.worker()) {
            return;
        }
        // A job that is gone by now leaves the task to its claim timeout.
        if let Ok(Some(job)) = self.deps.store.job(&created.task.job).await
            && let Some(assignment) = Assignment::of(Task::clone(&created.task), &job)
        {
            reserved.deliver(assignment);
        }
    }

    pub(super) async fn submit(&self, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
        let max = limits().batch_len_max;
        if tasks.len() > max {
            let refuse = || {
                let message = format!("a batch holds at most {max} tasks");
                ApiError::new(ErrorKind::TooLarge, "batch_too_large", message)
            };
            return tasks.iter().map(|_| Err(refuse())).collect();
        }
        let deps = &self.deps;
        let now = deps.clock.now();
        // A batch is for throughput; only a single task is worth a worker that is set aside for it.
        let reserved = match tasks.as_slice() {
            [task] if task.run_at.is_none() => deps
                .dispatch
                .as_ref()
                .and_then(|dispatch| dispatch.clone().reserve(&task.job, task.weight)),
            _ => None,
        };
        let named: Vec<(TaskId, Option<Arc<str>>)> = tasks
            .iter()
            .map(|task| {
                let extras = task.extras.as_ref();
                (task.id, extras.and_then(|extras| extras.key.clone()))
            })
            .collect();
        let creates: Vec<Create> = tasks
            .into_iter()
            .map(|task| Create {
                task,
                token: deps.rng.token(),
                write: deps.rng.write_id(),
                hand_on: true,
                claim_for: reserved.as_ref().map(|worker| worker.worker().clone()),
            })
            .collect();
        let results = deps.store.create(now, creates).await;
        if let (Some(reserved), Some(Ok(created))) = (reserved, results.first()) {
            self.deliver(reserved, created).await;
        }

        let fresh = results
            .iter()
            .filter_map(|result| result.as_ref().ok())
            .filter(|created| !created.existed);
        let born_enqueued = fresh.clone().map(|created| &*created.task);
        hand_on(&*deps.queue, born_enqueued).await;
        for created in fresh {
            // The earliest would do, but an announcement is one atomic operation.
            if let State::New { due_at } = created.task.state {
                deps.due.announce(due_at);
            }
        }

        let (mut stored, mut repeated, mut refused) = (0, 0, 0);
        let answers = results
            .into_iter()
            .zip(named)
            .map(|(result, (id, key))| match result {
                Ok(created) => {
                    if created.existed {
                        repeated += 1;
                    } else {
                        stored += 1;
                    }
                    let state: StateKind = created.task.kind();
                    let task = *created.task;
                    Ok(Submitted {
                        job: task.job,
                        id: task.id,
                        state,
                        run_at: task.run_at,
                        existed: created.existed,
                    })
                }
                Err(error) => {
                    refused += 1;
                    Err(refusal(error, &id, key.as_deref()))
                }
            })
            .collect();
        for (counter, count) in [
            (&self.submitted, stored),
            (&self.repeated, repeated),
            (&self.refused, refused),
        ] {
            if count > 0 {
                counter.increment(count);
            }
        }
        answers
    }
}
