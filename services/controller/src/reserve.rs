//! Reserves a polling worker for a new task, so that storing and claiming the task are one write.
//!
//! Without a reservation a task is stored, its message is sent and received, and the claim is a second write. While
//! the buffer has nothing for a waiting poll, its worker can be reserved before the task is stored.

use std::sync::Arc;

use dueline_api::{Assignment, Dispatch, Reservation};
use dueline_domain::{JobName, Weight, WorkerId};
use tokio::sync::oneshot;

use crate::{ControllerService, dispatch::Dispatched};

struct ReservedWorker {
    worker: WorkerId,
    controller: Arc<ControllerService>,
    delivery: oneshot::Sender<Dispatched>,
}

impl Reservation for ReservedWorker {
    fn worker(&self) -> &WorkerId {
        &self.worker
    }

    fn deliver(self: Box<Self>, assignment: Assignment) {
        let dispatched = Dispatched::new(
            vec![assignment],
            &self.controller.deps,
            &self.controller.dispatches,
        );
        // If the poll has been dropped, the task comes back here, and dropping it abandons it.
        drop(self.delivery.send(dispatched));
    }
}

impl Dispatch for ControllerService {
    fn reserve(self: Arc<Self>, job: &JobName, weight: Weight) -> Option<Box<dyn Reservation>> {
        if self.stopped.is_cancelled() {
            return None;
        }
        let handler = self.buffer().handler_if_empty(job)?;
        loop {
            let poll = self.waiting.take(job, &handler, u32::from(weight.get()))?;
            let (delivery, task) = oneshot::channel();
            // Sending fails when the poll was answered in the meantime; then the next waiting poll is tried.
            if poll.reserve.send(task).is_ok() {
                return Some(Box::new(ReservedWorker {
                    worker: poll.worker,
                    controller: self.clone(),
                    delivery,
                }));
            }
        }
    }
}
