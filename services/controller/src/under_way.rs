//! Runs that began with their claim and have not reached their worker.
//!
//! A worker that leaves loses what it owns, and a run that is lost has used a try. One whose worker never saw it must
//! be given back before that.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::WorkerId;
use tokio::sync::Notify;

/// How many hand-outs are under way, by worker.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_worker: Mutex<BTreeMap<WorkerId, usize>>,
    /// Woken when the last one of a worker has ended.
    settled: Notify,
}

/// A hand-out to a worker, until its tasks are taken over or given back. Ends when dropped.
#[derive(Debug)]
pub(crate) struct HandOut {
    counts: Arc<Counts>,
    worker: WorkerId,
}

impl UnderWay {
    /// A hand-out to `worker` begins.
    pub(crate) fn begin(&self, worker: &WorkerId) -> HandOut {
        *self.0.lock().entry(worker.clone()).or_default() += 1;
        HandOut {
            counts: self.0.clone(),
            worker: worker.clone(),
        }
    }

    /// Waits until none to `worker` is under way. Cancel safe.
    pub(crate) async fn settled(&self, worker: &WorkerId) {
        loop {
            let mut settled = pin!(self.0.settled.notified());
            settled.as_mut().enable();
            if !self.0.lock().contains_key(worker) {
                return;
            }
            settled.await;
        }
    }
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, usize>> {
        self.by_worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HandOut {
    fn drop(&mut self) {
        let mut by_worker = self.counts.lock();
        if let Some(count) = by_worker.get_mut(&self.worker) {
            *count -= 1;
            if *count == 0 {
                by_worker.remove(&self.worker);
                self.counts.settled.notify_waiters();
            }
        }
    }
}
