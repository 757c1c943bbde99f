//! Lists of tasks as an iterator that carries its settings.

use std::{collections::VecDeque, sync::Arc};

use dueline_domain::{JobName, StateKind, Task};
use dueline_ports::ListQuery;

use crate::{ApiError, Call, Callable, operation::ListTasks};

/// Iterates over the tasks of a job, page by page, newest first.
///
/// Each page is what is stored when it is read: nothing is cached, so every iteration is a fresh one. A task that is there
/// from the first page to the last is returned once, whatever is submitted and deleted meanwhile; tasks submitted after the
/// first page are not returned. A task is returned as it was when its page was read, so it may have changed since.
#[derive(Clone, Debug)]
pub struct TaskIter<F: ?Sized> {
    frontend: Arc<F>,
    call: Call,
    query: ListQuery,
    page: VecDeque<Task>,
    /// Whether the last page was read.
    ended: bool,
}

impl<F: Callable<ListTasks> + ?Sized> TaskIter<F> {
    /// Iterates over all tasks of a job.
    pub fn new(frontend: Arc<F>, job: JobName) -> Self {
        Self::of(frontend, ListQuery::of(job))
    }

    /// Iterates over the tasks without an owner that have not ended.
    pub fn unclaimed(frontend: Arc<F>, job: JobName) -> Self {
        let pending = StateKind::ALL
            .into_iter()
            .filter(|state| state.is_pending());
        let query = ListQuery {
            states: pending.collect(),
            ..ListQuery::of(job)
        };
        Self::of(frontend, query)
    }

    /// Iterates over what a query asks for. With the cursor of another iterator it goes on there.
    pub fn of(frontend: Arc<F>, query: ListQuery) -> Self {
        Self {
            frontend,
            call: Call::default(),
            query,
            page: VecDeque::new(),
            ended: false,
        }
    }

    /// Makes its calls in this context.
    #[must_use]
    pub fn with_call(mut self, call: Call) -> Self {
        self.call = call;
        self
    }

    /// The job whose tasks it returns.
    pub const fn job(&self) -> &JobName {
        &self.query.job
    }

    /// Whether it returns only tasks without an owner.
    pub fn only_unclaimed(&self) -> bool {
        let states = &self.query.states;
        !states.is_empty() && states.iter().all(|state| state.is_pending())
    }

    /// Whether each page is read from what is stored at that moment. There is no other iterator.
    pub const fn is_fresh(&self) -> bool {
        true
    }

    /// Everything that it asks for, with the cursor of the next page to read. The tasks of the present page that were not
    /// returned yet are before that cursor.
    pub const fn query(&self) -> &ListQuery {
        &self.query
    }

    /// The next task; `None` at the end. After an error the call may be repeated: no task is left out.
    pub async fn next(&mut self) -> Result<Option<Task>, ApiError> {
        while self.page.is_empty() && !self.ended {
            let operation = ListTasks(self.query.clone());
            let page = self.frontend.call(&self.call, operation).await?;
            self.ended = page.next.is_none();
            self.query.cursor = page.next;
            self.page = page.tasks.into();
        }
        Ok(self.page.pop_front())
    }
}
