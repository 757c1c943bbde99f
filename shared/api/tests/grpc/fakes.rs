//! Services that record their calls and return prepared answers.

use std::{
    any::Any,
    collections::VecDeque,
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::{
    ApiError, Assignment, Call, Callable, Controller, Operation, PollRequest, Registered,
    Registration, Report, ReportAck, ServedJob, StatusController,
};
use dueline_domain::{JobName, TaskRef, WorkerId};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, TaskQueue};

/// What was asked and what will be answered.
#[derive(Default)]
pub(crate) struct Script {
    calls: Mutex<Vec<String>>,
    answers: Mutex<VecDeque<Box<dyn Any + Send>>>,
}

impl Script {
    /// The next call answers this.
    pub(crate) fn answers<T: Send + 'static>(&self, answer: T) {
        self.answers.lock().unwrap().push_back(Box::new(answer));
    }

    /// The calls since this was asked last.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn call<T: 'static>(&self, verb: &str, arguments: impl Debug) -> T {
        self.calls.lock().unwrap().push(said(verb, arguments));
        let answer = self.answers.lock().unwrap().pop_front();
        let answer = answer.expect("an answer was prepared");
        *answer.downcast().expect("an answer of the right type")
    }
}

/// How a call is noted: every field of every argument is in it.
pub(crate) fn said(verb: &str, arguments: impl Debug) -> String {
    format!("{verb}{arguments:?}")
}

#[derive(Clone, Default)]
pub(crate) struct Scripted(pub(crate) Arc<Script>);

#[async_trait]
impl<O: Operation> Callable<O> for Scripted {
    async fn call(&self, _: &Call, operation: O) -> Result<O::Output, ApiError> {
        self.0.call("", operation)
    }
}

#[async_trait]
impl StatusController for Scripted {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        self.0.call("claim", (worker, messages, start))
    }
    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        self.0.call("report", (reports,))
    }
    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        self.0.call("alive", (worker,))
    }
    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        self.0.call("leave", (worker,))
    }
    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        self.0.call("jobs", ())
    }
}

#[async_trait]
impl Controller for Scripted {
    async fn poll(&self, ask: PollRequest) -> Result<Vec<Assignment>, ApiError> {
        self.0.call("next", (ask,))
    }
    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        self.0.call("report", (reports,))
    }
    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        self.0.call("alive", (worker,))
    }
    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        self.0.call("leave", (worker,))
    }
}

pub(crate) const VISIBILITY_TIMEOUT: Duration = Duration::from_millis(34_567);

#[async_trait]
impl TaskQueue for Scripted {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        self.0.call("ensure", (job,))
    }
    async fn remove(&self, _: &JobName) -> Result<(), QueueError> {
        panic!("queues are not removed from another host")
    }
    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        self.0.call("send", (messages,))
    }
    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        self.0.call("receive", (job, max, wait))
    }
    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.0.call("ack", (receipts,))
    }
    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.0.call("nack", (receipts, delay))
    }
    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.0.call("extend", (receipts,))
    }
    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.0.call("depth", (job,))
    }
    fn visibility_timeout(&self) -> Duration {
        VISIBILITY_TIMEOUT
    }
}
