//! Claimed tasks on their way to a worker.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use dueline_domain::{JobName, TaskId, Token, WriteId};
use dueline_runtime::TaskGroup;

use crate::{Action, Assignment, Controller, Report};

/// A task and the token of its claim.
pub(crate) type ClaimedTask = (JobName, TaskId, Token);

/// Claimed tasks in an answer that is not written yet. A server attaches it to its answer, as an extension.
///
/// Once someone follows the answer ([`Undelivered::follow`]), the tasks are abandoned when the last clone is dropped without
/// [`Undelivered::delivered`], so that another worker gets them at once and not after their claim timeout. Where no handler
/// does, they count as delivered.
#[derive(Clone)]
pub struct Undelivered(Arc<OnTheWay>);

struct OnTheWay {
    work: Arc<dyn Controller>,
    returns: TaskGroup,
    tasks: Mutex<Vec<ClaimedTask>>,
    is_followed: AtomicBool,
}

impl Undelivered {
    /// The tasks of an answer of `work`. They are returned by tasks of `returns`.
    pub fn new(work: Arc<dyn Controller>, returns: TaskGroup, assignments: &[Assignment]) -> Self {
        let tasks = assignments.iter().map(claimed).collect();
        Self(Arc::new(OnTheWay {
            work,
            returns,
            tasks: Mutex::new(tasks),
            is_followed: AtomicBool::new(false),
        }))
    }

    /// From now on it is known whether the answer is written.
    pub fn follow(&self) {
        self.0.is_followed.store(true, Ordering::Relaxed);
    }

    /// The answer is written. Whether the worker reads it cannot be known.
    pub fn delivered(&self) {
        let tasks = &self.0.tasks;
        tasks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for OnTheWay {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        if *self.is_followed.get_mut() {
            give_back(&self.work, &self.returns, std::mem::take(tasks));
        }
    }
}

pub(crate) fn claimed(assignment: &Assignment) -> ClaimedTask {
    (assignment.job.clone(), assignment.id, assignment.token)
}

/// Abandons tasks that did not reach their worker.
pub(crate) fn give_back(
    work: &Arc<dyn Controller>,
    returns: &TaskGroup,
    tasks: impl IntoIterator<Item = ClaimedTask>,
) {
    let reports: Vec<_> = tasks.into_iter().map(abandoned).collect();
    // Outside a runtime the process is ending; then the claims lapse by themselves.
    if reports.is_empty() || tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    let work = work.clone();
    returns.spawn_infallible("return of undelivered tasks", async move {
        for answer in work.report(reports).await {
            // A task that was moved on by others is no longer ours to return.
            if let Err(error) = answer.as_ref()
                && !error.is_lost()
            {
                tracing::warn!(
                    error.reason = %error.reason(),
                    "failed to return an undelivered task before its claim lapses: {error}"
                );
            }
        }
    });
}

fn abandoned((job, id, token): ClaimedTask) -> Report {
    // A token is random and its task is abandoned once at most, so the token can name the write as well.
    let write = WriteId::from_random(token.get());
    let action = Action::Abandon;
    Report {
        job,
        id,
        token,
        write,
        action,
        trace: None,
    }
}
