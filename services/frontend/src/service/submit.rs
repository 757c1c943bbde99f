//! Storing tasks: store first, then send.

use std::sync::Arc;

use dueline_api::{
    ApiError, Assignment, Call, ErrorKind, ErrorReason, Reservation, check,
    operation::{Submit, Submitted},
};
use dueline_domain::{Due, NewTask, StateKind, Task, TaskId};
use dueline_ports::{Create, Created, StoreError};
use dueline_runtime::log_transition;
use dueline_trace::{Began, Step, TaskSpan};

use super::{Inner, Serve};

/// The error of a submit. One that met another task by its key says so.
fn refusal(error: StoreError, id: &TaskId, key: Option<&str>) -> ApiError {
    match (&error, key) {
        (StoreError::Exists(other), Some(key)) if other != id => {
            let message =
                format!("the key '{key}' is taken: task {other} has it, with other content");
            ApiError::new(ErrorKind::Conflict, ErrorReason::Exists, message).with_field("key")
        }
        _ => error.into(),
    }
}

/// Removes the tasks with these numbers, which are in order.
fn remove_all(tasks: &mut Vec<NewTask>, numbers: &[(usize, ApiError)]) {
    let mut removed = numbers.iter().map(|(number, _)| *number).peekable();
    let mut number = 0;
    tasks.retain(|_| {
        let is_removed = removed.next_if_eq(&number).is_some();
        number += 1;
        !is_removed
    });
}

/// Records in a task which call has submitted it.
fn name_caller(task: &mut NewTask, call: &Call) {
    let (principal, trace) = (&call.principal, &call.trace);
    if principal.is_none() && trace.is_none() && task.options.is_none() {
        return;
    }
    let options = task.options.get_or_insert_default();
    options.created_by = principal.clone();
    options.trace = trace.clone();
}

impl Serve for Submit {
    /// Checks and stores tasks. A task that is refused does not affect the others.
    async fn serve(
        self,
        inner: &Inner,
        call: &Call,
    ) -> Result<Vec<Result<Submitted, ApiError>>, ApiError> {
        let mut tasks = self.tasks;
        let mut invalid: Vec<(usize, ApiError)> = Vec::new();
        for (index, task) in tasks.iter_mut().enumerate() {
            name_caller(task, call);
            if let Err(error) = check::new_task(task) {
                invalid.push((index, error));
            }
        }
        if invalid.is_empty() {
            return Ok(inner.store(tasks).await);
        }
        inner.refused.increment(invalid.len() as u64);
        remove_all(&mut tasks, &invalid);
        let mut answers = match tasks.is_empty() {
            true => Vec::new(),
            false => inner.store(tasks).await,
        };
        // In the order of the tasks, so each answer finds its place.
        for (index, error) in invalid {
            answers.insert(index.min(answers.len()), Err(error));
        }
        Ok(answers)
    }
}

impl Inner {
    /// Hands a task that was born claimed to its worker. A task of an earlier submit, or one that its job held back,
    /// is not: dropping the reservation lets the worker go on waiting.
    async fn deliver(&self, reserved: Box<dyn Reservation>, created: &Created, began: Began) {
        let owner = created.task.lease().map(|lease| &lease.worker);
        if created.existed || owner != Some(reserved.worker()) {
            return;
        }
        // A job that is gone by now leaves the task to its claim timeout.
        if let Ok(Some(job)) = self.deps.store.job(&created.task.job).await
            && let Some(mut assignment) = Assignment::of(Task::clone(&created.task), &job)
        {
            let claim = TaskSpan::start(
                Step::Claim,
                assignment.trace.as_deref(),
                &assignment.job,
                &assignment.id,
                began,
            );
            if let Some(claim) = claim {
                claim.set("dueline.worker", reserved.worker().to_string());
                claim.set("dueline.attempt", i64::from(assignment.attempt));
                assignment.trace = Some(claim.traceparent());
            }
            reserved.deliver(assignment);
        }
    }

    /// Stores checked tasks, and connects those that wait with those that they wait for.
    async fn store(&self, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
        let has_family = |task: &NewTask| task.family().is_some();
        match tasks.iter().any(has_family) {
            true => self.store_families(tasks).await,
            false => self.store_and_send(tasks).await,
        }
    }

    /// Stores checked tasks, and sends those that are due.
    pub(super) async fn store_and_send(
        &self,
        mut tasks: Vec<NewTask>,
    ) -> Vec<Result<Submitted, ApiError>> {
        let deps = &self.deps;
        let (now, began) = (deps.clock.now(), Began::now());
        let spans = SubmitSpans::start(&mut tasks, began);
        // A batch is for throughput; only a single task is worth a worker that is set aside for it.
        let reserved = match tasks.as_slice() {
            [task] if task.due == Due::Now && task.family().is_none() => deps
                .dispatch
                .as_ref()
                .and_then(|dispatch| dispatch.clone().reserve(&task.job, task.weight)),
            _ => None,
        };
        let named: Vec<(TaskId, Option<Arc<str>>)> = tasks
            .iter()
            .map(|task| {
                let options = task.options.as_ref();
                (task.id, options.and_then(|options| options.key.clone()))
            })
            .collect();
        let creates: Vec<Create> = tasks
            .into_iter()
            .map(|task| Create {
                task,
                token: deps.rng.token(),
                write: deps.rng.write_id(),
                may_enqueue: true,
                claim_for: reserved.as_ref().map(|worker| worker.worker().clone()),
            })
            .collect();
        let results = deps.store.create(now, creates).await;
        if let (Some(reserved), Some(Ok(created))) = (reserved, results.first()) {
            self.deliver(reserved, created, began).await;
        }

        let fresh = results
            .iter()
            .filter_map(|result| result.as_ref().ok())
            .filter(|created| created.is_written());
        let fresh = fresh.map(|created| &*created.task);
        for task in fresh.clone() {
            log_transition(None, task);
        }
        deps.effects().perform(fresh, began).await;

        spans.record(&results);
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
                        replaced: created.replaced,
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

/// The spans of the tasks of one submit. Empty while tracing is off.
struct SubmitSpans(Vec<Option<TaskSpan>>);

impl SubmitSpans {
    /// Begins the spans. Each task that is traced is stored with the context of its span.
    fn start(tasks: &mut [NewTask], began: Began) -> Self {
        if !dueline_trace::is_on() {
            return Self(Vec::new());
        }
        let start = |task: &mut NewTask| {
            let options = task.options.as_ref();
            let client = options.and_then(|options| options.trace.as_deref());
            let span = TaskSpan::submit(client, &task.job, &task.id, began)?;
            task.options.get_or_insert_default().trace = Some(span.traceparent());
            Some(span)
        };
        Self(tasks.iter_mut().map(start).collect())
    }

    fn record(&self, results: &[Result<Created, StoreError>]) {
        for (span, result) in self.0.iter().zip(results) {
            match (span, result) {
                (Some(span), Ok(created)) if created.existed => span.set("dueline.existed", true),
                (Some(span), Err(error)) => span.failed("not_stored", error.to_string()),
                _ => {}
            }
        }
    }
}
