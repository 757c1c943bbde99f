//! Storing tasks: store first, then send.

use dueline_api::{ApiError, ErrorKind, Submitted};
use dueline_domain::{NewTask, State, StateKind, limits};
use dueline_ports::{Create, hand_on};

use super::Inner;

impl Inner {
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
        let creates: Vec<Create> = tasks
            .into_iter()
            .map(|task| Create {
                task,
                token: deps.rng.token(),
                write: deps.rng.write_id(),
                hand_on: true,
            })
            .collect();
        let results = deps.store.create(now, creates).await;

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
            .map(|result| match result {
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
                    Err(error.into())
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
