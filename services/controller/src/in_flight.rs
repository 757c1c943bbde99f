//! Dispatches of started runs that have not reached their worker yet.
//!
//! When a worker deregisters, the runs it owns are reclaimed, and a reclaimed run has used a try. A run that never
//! reached its worker must be abandoned before that, because an abandoned run uses no try.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::WorkerId;
use tokio::sync::Notify;

/// How many dispatches are in flight, by worker.
#[derive(Debug, Default)]
pub(crate) struct InFlightDispatches(Arc<InFlightCounts>);

#[derive(Debug, Default)]
struct InFlightCounts {
    by_worker: Mutex<BTreeMap<WorkerId, usize>>,
    /// Signalled when the last dispatch to a worker has ended.
    settled: Notify,
}

/// A dispatch to a worker, until the worker has its tasks or they are abandoned. Ends when dropped.
#[derive(Debug)]
pub(crate) struct InFlightDispatch {
    counts: Arc<InFlightCounts>,
    worker: WorkerId,
}

impl InFlightDispatches {
    /// Begins a dispatch to `worker`.
    pub(crate) fn begin(&self, worker: &WorkerId) -> InFlightDispatch {
        *self.0.lock().entry(worker.clone()).or_default() += 1;
        InFlightDispatch {
            counts: self.0.clone(),
            worker: worker.clone(),
        }
    }

    /// Waits until no dispatch to `worker` is in flight. Cancel safe.
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

impl InFlightCounts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, usize>> {
        self.by_worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightDispatch {
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
