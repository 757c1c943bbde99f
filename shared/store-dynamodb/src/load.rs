//! Reading one task.

use std::sync::Arc;

use dueline_domain::{JobName, Task, TaskId};
use dueline_ports::StoreError;

use crate::{
    attr::Item,
    calls::{For, Key},
    parts,
    row::{self, Parts, Row},
    schema::Home,
    store::Inner,
};

/// Reads of a task whose parts keep changing meanwhile.
const TRIES_MAX: u32 = 4;

impl Inner {
    pub(crate) async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        let jobs = self.jobs(false).await?;
        let Some(entry) = jobs.get(job) else {
            return Ok(None);
        };
        let of = For::job(job.as_str(), "get");
        let row = self.load(of, &entry.home, id).await?;
        Ok(row.map(|row| Arc::unwrap_or_clone(row).task))
    }

    /// A task as of the last acknowledged write, whole.
    pub(crate) async fn load(
        &self,
        of: For<'_>,
        home: &Home,
        id: &TaskId,
    ) -> Result<Option<Arc<Row>>, StoreError> {
        let key = Key::new(home.of(id), id.as_bytes());
        for tries in 0..TRIES_MAX {
            let Some(item) = self.table.get(of, &key, true).await? else {
                return Ok(None);
            };
            let last = tries + 1 == TRIES_MAX;
            if let Some(row) = self
                .complete(of, home, id, item, Parts::new(), last)
                .await?
            {
                return Ok(Some(Arc::new(row)));
            }
        }
        Ok(None)
    }

    /// A task as some replica knows it, for half the price; `None` when there is none, or when it is not whole.
    pub(crate) async fn glance(
        &self,
        of: For<'_>,
        home: &Home,
        id: &TaskId,
    ) -> Result<Option<Arc<Row>>, StoreError> {
        let key = Key::new(home.of(id), id.as_bytes());
        let Some(item) = self.table.get(of, &key, false).await? else {
            return Ok(None);
        };
        let row = self
            .complete(of, home, id, item, Parts::new(), false)
            .await?;
        Ok(row.map(Arc::new))
    }

    /// Makes an item whole with its parts; `None` when one of them is gone, because the task has moved on since. The
    /// last time that is an error.
    pub(crate) async fn complete(
        &self,
        of: For<'_>,
        home: &Home,
        id: &TaskId,
        item: Item,
        mut parts: Parts,
        last: bool,
    ) -> Result<Option<Row>, StoreError> {
        let wanted = row::refs(&item);
        // Parts never change, so the cheaper read will do; one that is too new for it is asked for again.
        let partition = home.of(id);
        for consistent in [false, true] {
            let table = &self.table;
            if parts::fetch(table, of, &partition, id, &wanted, &mut parts, consistent).await? {
                let read = row::read(&home.job, *id, item, &parts, false);
                return read.map(Some).map_err(|bad| self.corrupt(of, id, bad));
            }
        }
        if last {
            let bad = crate::attr::Bad::new("a part is missing");
            return Err(self.corrupt(of, id, bad));
        }
        Ok(None)
    }

    /// A task that makes no sense is told, logged and counted; it stands in nobody's way.
    pub(crate) fn corrupt(&self, of: For<'_>, id: &TaskId, bad: crate::attr::Bad) -> StoreError {
        tracing::error!(task.id = %id, job.name = of.job, error = %bad, "unreadable task");
        metrics::counter!("dueline_store_unreadable_total").increment(1);
        bad.of(format!("task {id}"))
    }
}
