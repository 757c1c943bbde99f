//! What has changed, for those who watch.

use std::time::Duration;

use dueline_api::{
    ApiError, Call,
    operation::{ReadChanges, WatchPage, WatchedChange},
};
use dueline_domain::{JobName, TaskId, TaskNews};
use dueline_ports::{ChangePage, ChangeQuery};
use tokio::time::{Instant, sleep_until};

use super::{Inner, Serve, read::end_of_wait};

/// When the watch of one task reads it again: at first soon, then less and less often.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(125), Duration::from_secs(1));

impl Serve for ReadChanges {
    /// Cancel safe.
    async fn serve(self, inner: &Inner, call: &Call) -> Result<WatchPage, ApiError> {
        let until = end_of_wait(call, self.wait);
        if let Some(id) = self.id {
            let reported = self.task_cursor()?;
            return inner.watch_task(&self.job, id, reported, until).await;
        }
        let query = ChangeQuery {
            after: self.job_cursor()?,
            job: self.job,
            now: inner.deps.clock.now(),
            wait: until.saturating_duration_since(Instant::now()),
            limit: self.limit,
        };
        Ok(page(inner.deps.store.changes(query).await?))
    }
}

fn page(page: ChangePage) -> WatchPage {
    let changes = page
        .changes
        .into_iter()
        .map(|(news, cursor)| WatchedChange {
            news,
            cursor: cursor.to_string().into(),
        });
    WatchPage {
        changes: changes.collect(),
        next: page.next.to_string().into(),
        gap: page.gap,
    }
}

impl Inner {
    /// Reads one task until it is another one than the one that the reader has got. Nothing is missed but states in between.
    async fn watch_task(
        &self,
        job: &JobName,
        id: TaskId,
        reported: Option<u64>,
        until: Instant,
    ) -> Result<WatchPage, ApiError> {
        // Subscribed before the first read, so that an end in between is not missed.
        let end = self.deps.ended.subscribe(id);
        let mut look_again = LOOK_AGAIN.0;
        loop {
            let found = match self.deps.store.get(job, &id).await? {
                Some(task) => TaskNews::since(None, &task),
                // Only a reader that has got the task before knows that it was there.
                None if reported.is_some() => {
                    self.job(job).await?;
                    let now = self.deps.clock.now();
                    Some(TaskNews::removed(job.clone(), id, now))
                }
                None => return Err(self.task(job, &id).await.err().unwrap_or_else(gone)),
            };
            let now = Instant::now();
            let fingerprint = |news: &TaskNews| {
                let shown = news.shown.as_ref();
                shown.map_or(0, dueline_domain::ShownTask::fingerprint)
            };
            if let Some(news) = found.filter(|news| Some(fingerprint(news)) != reported) {
                let cursor = ReadChanges::cursor_of_task(fingerprint(&news));
                let next = cursor.clone();
                return Ok(WatchPage {
                    changes: vec![WatchedChange { news, cursor }],
                    next,
                    gap: false,
                });
            }
            if now >= until {
                return Ok(WatchPage {
                    changes: Vec::new(),
                    next: ReadChanges::cursor_of_task(reported.unwrap_or_default()),
                    gap: false,
                });
            }
            tokio::select! {
                biased;
                () = end.signalled() => {}
                () = sleep_until(until.min(now + look_again)) => {}
            }
            look_again = (look_again * 2).min(LOOK_AGAIN.1);
        }
    }
}

/// The task was stored between two reads.
fn gone() -> ApiError {
    ApiError::unavailable("the task has just appeared; ask again")
}
