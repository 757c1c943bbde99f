//! A watch as an iterator that carries its position.

use std::{sync::Arc, time::Duration};

use dueline_domain::{ChangeKind, JobName, TaskId};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    ApiError, Call, Callable, ErrorKind, ErrorReason, check,
    operation::{ReadChanges, WatchPage},
};

/// How long one read waits for a change. A reader learns that the watch lives when it is over.
const WAIT: Duration = Duration::from_secs(15);
/// Most watches that a process serves as streams at once.
const STREAMS_MAX: usize = 1_024;

static STREAMS: Semaphore = Semaphore::const_new(STREAMS_MAX);

/// Watches the tasks of a job, or one task, page by page.
///
/// It holds no more than the page that it returns. Nothing is kept for it in between: it reads from its position, so a reader
/// that is slow delays no write, and one that is too slow gets an error with the reason `too_slow`. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch<F: ?Sized> {
    frontend: Arc<F>,
    call: Call,
    query: ReadChanges,
    /// Whether a page was returned.
    begun: bool,
    /// Whether the task that is watched has ended.
    ended: bool,
    _place: Option<SemaphorePermit<'static>>,
}

impl<F: Callable<ReadChanges> + ?Sized> Watch<F> {
    /// Watches all tasks of a job from now on.
    pub fn job(frontend: Arc<F>, job: JobName) -> Self {
        Self::of(frontend, Call::default(), job, None)
    }

    /// Watches one task until it has ended. The first page shows it as it is.
    pub fn task(frontend: Arc<F>, job: JobName, id: TaskId) -> Self {
        Self::of(frontend, Call::default(), job, Some(id))
    }

    /// Goes on from the position of an earlier watch.
    #[must_use]
    pub fn after(mut self, cursor: Arc<str>) -> Self {
        self.query.cursor = Some(cursor);
        self
    }

    /// Makes its calls in this context.
    #[must_use]
    pub fn with_call(mut self, call: Call) -> Self {
        self.call = call;
        self
    }

    /// A watch that is served as a stream. Refused while the process serves too many of them.
    pub fn for_stream(frontend: Arc<F>, call: Call, query: ReadChanges) -> Result<Self, ApiError> {
        let place = STREAMS.try_acquire().map_err(|_| {
            let message = format!("{STREAMS_MAX} watches are served already");
            ApiError::new(ErrorKind::Unavailable, ErrorReason::Overloaded, message)
                .with_retry_after(Duration::from_secs(1))
        })?;
        // The deadline is that of the request, not that of the stream.
        let call = Call {
            deadline: None,
            ..call
        };
        let mut watch = Self::of(frontend, call, query.job, query.id);
        watch.query.cursor = query.cursor;
        watch.query.limit = query.limit;
        watch._place = Some(place);
        Ok(watch)
    }

    fn of(frontend: Arc<F>, call: Call, job: JobName, id: Option<TaskId>) -> Self {
        let query = ReadChanges {
            job,
            id,
            cursor: None,
            wait: WAIT,
            limit: check::PAGE_LEN_DEFAULT,
        };
        Self {
            frontend,
            call,
            query,
            begun: false,
            ended: false,
            _place: None,
        }
    }

    /// Where the next page begins; `None` before the first one.
    pub fn cursor(&self) -> Option<&str> {
        self.query.cursor.as_deref()
    }

    /// The next page; `None` once the task that is watched has ended. An empty page means that nothing has changed for a
    /// while; the first page of a job is empty, and names the position from which it is watched. Cancel safe. After an
    /// error that is retryable the call may be repeated.
    pub async fn next_page(&mut self) -> Result<Option<WatchPage>, ApiError> {
        if self.ended {
            return Ok(None);
        }
        // The first answer comes at once, so that the reader knows that it watches.
        let wait = match self.begun {
            true => WAIT,
            false => Duration::ZERO,
        };
        let query = ReadChanges {
            wait,
            ..self.query.clone()
        };
        let page = self.frontend.call(&self.call, query).await?;
        let missed = page.gap && self.begun;
        self.query.cursor = Some(page.next.clone());
        self.begun = true;
        if missed {
            let message = format!(
                "changes were missed because the reader was too slow; read the tasks, and watch on from {}",
                page.next
            );
            return Err(ApiError::new(
                ErrorKind::Conflict,
                ErrorReason::TooSlow,
                message,
            ));
        }
        let kinds = page.changes.iter().map(|change| change.news.kind);
        let is_end = |kind| matches!(kind, ChangeKind::Ended | ChangeKind::Removed);
        self.ended = self.query.id.is_some() && kinds.into_iter().any(is_end);
        Ok(Some(page))
    }
}
