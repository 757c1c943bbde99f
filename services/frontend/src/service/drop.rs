//! Drops the tasks of a job, page by page.

use std::sync::Arc;

use dueline_api::{
    ApiError, Call,
    operation::{DropTasks, DroppedTasks},
};
use dueline_domain::{Event, StateKind};
use dueline_ports::{Command, ListQuery, StoreError};
use dueline_runtime::log_transition;

use super::{Inner, Serve};

/// States in which no worker owns a task and no other task must end first.
const UNOWNED: [StateKind; 3] = [StateKind::New, StateKind::Enqueued, StateKind::Retriable];
/// Tasks in one read of the store, whose payloads are in memory for that time.
const PAGE_LEN: usize = 100;
/// Reads of one call, so that no call takes long.
const PAGES_MAX: usize = 10;

impl Serve for DropTasks {
    async fn serve(self, inner: &Inner, call: &Call) -> Result<DroppedTasks, ApiError> {
        inner.job(&self.job).await?;
        let why = why(call.principal.as_deref(), self.reason.as_deref());
        let mut done = DroppedTasks {
            next: self.cursor,
            ..DroppedTasks::default()
        };
        for _ in 0..PAGES_MAX {
            let query = ListQuery {
                states: UNOWNED.to_vec(),
                tag: self.tag.clone(),
                cursor: done.next.take(),
                limit: PAGE_LEN,
                ..ListQuery::of(self.job.clone())
            };
            let page = inner.deps.store.list(query).await?;
            let commands = page.tasks.iter().map(|task| Command {
                job: task.job.clone(),
                id: task.id,
                event: Event::Drop {
                    reason: why.clone(),
                },
                write: inner.deps.rng.write_id(),
            });
            let (deps, commands) = (&inner.deps, commands.collect());
            let now = deps.clock.now();
            let results = deps.effects().apply(&*deps.store, now, commands).await;
            for (task, result) in page.tasks.iter().zip(results) {
                match result {
                    Ok(applied) => {
                        log_transition(Some(task.kind()), &applied.task);
                        done.dropped += 1;
                    }
                    Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => done.left += 1,
                    // What was dropped so far stays dropped: the caller repeats the call.
                    Err(error) => return Err(error.into()),
                }
            }
            done.next = page.next;
            if done.next.is_none() {
                break;
            }
        }
        Ok(done)
    }
}

/// The reason that is stored with a task: who and why.
fn why(principal: Option<&str>, reason: Option<&str>) -> Arc<str> {
    let by = principal.map_or_else(String::new, |name| format!(" by {name}"));
    let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    format!("dropped{by}{because}").into()
}
