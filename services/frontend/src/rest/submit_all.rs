//! Submits, and the one question that the store cannot answer by itself.

use dueline_api::{ApiError, Submitted, v1::TaskSubmit};
use dueline_domain::{NewTask, Task};
use dueline_ports::ListQuery;

use super::App;

/// A task to store.
pub(super) struct Submit {
    task: NewTask,
    /// A copy without its time, for a submit that may come twice and tells its time from now: the second time that
    /// is another point in time, but the same submit.
    repeatable: Option<Box<NewTask>>,
}

impl Submit {
    /// `delayed` tells whether the time of the task was given as a delay.
    pub(super) fn new(task: NewTask, delayed: bool) -> Self {
        let has_key = task
            .extras
            .as_ref()
            .is_some_and(|extras| extras.key.is_some());
        let repeatable = (delayed && (task.id_is_given || has_key)).then(|| {
            Box::new(NewTask {
                run_at: None,
                ..task.clone()
            })
        });
        Self { task, repeatable }
    }
}

/// Whether a submit tells its time as a delay.
pub(super) const fn is_delayed(spec: &TaskSubmit) -> bool {
    spec.delay_ms.is_some()
}

/// Stores tasks; each has its own answer, in order.
pub(super) async fn submit_all(
    app: &App,
    submits: Vec<Submit>,
) -> Vec<Result<Submitted, ApiError>> {
    let mut repeatable = Vec::new();
    let mut tasks = Vec::with_capacity(submits.len());
    for (index, submit) in submits.into_iter().enumerate() {
        if let Some(copy) = submit.repeatable {
            repeatable.push((index, copy));
        }
        tasks.push(submit.task);
    }
    let mut answers = match app.frontend() {
        Ok(frontend) => frontend.submit(tasks).await,
        Err(error) => return tasks.iter().map(|_| Err(error.clone())).collect(),
    };
    for (index, submit) in repeatable {
        let Some(answer) = answers.get_mut(index) else {
            continue;
        };
        let taken = matches!(answer, Err(error) if error.reason() == "exists");
        if taken && let Some(task) = existing(app, &submit).await {
            *answer = Ok(Submitted {
                state: task.kind(),
                job: task.job,
                id: task.id,
                run_at: task.run_at,
                existed: true,
            });
        }
    }
    answers
}

/// The task that an equal submit made, its time aside.
async fn existing(app: &App, submit: &NewTask) -> Option<Task> {
    let key = submit.extras.as_ref().and_then(|e| e.key.clone());
    let task = if let Some(key) = key {
        let query = ListQuery {
            key: Some(key),
            limit: 1,
            ..ListQuery::of(submit.job.clone())
        };
        app.frontend().ok()?.tasks(query).await.ok()?.tasks.pop()?
    } else {
        let task = app.frontend().ok()?.task(&submit.job, &submit.id, None);
        task.await.ok()?
    };
    let same_id = !submit.id_is_given || submit.id == task.id;
    (same_id && task.is_made_by(submit)).then_some(task)
}
