//! A controller that dispatches prepared tasks, and records polls, deregistrations and reports.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use dueline_api::{
    ApiError, Assignment, Controller, PollRequest, Registered, Registration, Report, ReportAck,
};
use dueline_domain::{StateKind, WorkerId};
use tokio::sync::{Notify, watch};

use crate::server::soon;

#[derive(Clone, Default)]
pub(crate) struct FakeController(Arc<Inner>);

#[derive(Default)]
struct Inner {
    backlog: Mutex<VecDeque<Assignment>>,
    arrived: Notify,
    asks: watch::Sender<Vec<PollRequest>>,
    vanished: watch::Sender<usize>,
    reports: watch::Sender<Vec<Report>>,
    stopped: watch::Sender<bool>,
}

impl FakeController {
    /// Work arrives.
    pub(crate) fn give(&self, assignments: impl IntoIterator<Item = Assignment>) {
        self.0.backlog.lock().unwrap().extend(assignments);
        self.0.arrived.notify_one();
    }

    /// No more work from now on.
    pub(crate) fn stop(&self) {
        self.0.stopped.send_replace(true);
    }

    /// The tasks that are left to dispatch.
    pub(crate) fn left(&self) -> usize {
        self.0.backlog.lock().unwrap().len()
    }

    /// The questions so far, when there are this many.
    pub(crate) async fn asked(&self, times: usize) -> Vec<PollRequest> {
        let mut asks = self.0.asks.subscribe();
        let asks = soon(asks.wait_for(|asks| asks.len() >= times)).await;
        asks.unwrap().clone()
    }

    /// Waits until this many askers have gone without an answer.
    pub(crate) async fn vanished(&self, askers: usize) {
        let mut vanished = self.0.vanished.subscribe();
        soon(vanished.wait_for(|gone| *gone >= askers))
            .await
            .unwrap();
    }

    /// The reports so far, when there are this many.
    pub(crate) async fn reported(&self, reports: usize) -> Vec<Report> {
        let mut seen = self.0.reports.subscribe();
        let seen = soon(seen.wait_for(|seen| seen.len() >= reports)).await;
        seen.unwrap().clone()
    }

    /// All tasks here weigh one.
    fn take(&self, ask: &PollRequest) -> Vec<Assignment> {
        let mut backlog = self.0.backlog.lock().unwrap();
        let weight_max = usize::try_from(ask.weight_max).unwrap();
        let len = backlog.len().min(ask.tasks_max).min(weight_max);
        backlog.drain(..len).collect()
    }
}

/// Notes an asker that goes without an answer.
struct Asker<'a> {
    vanished: &'a watch::Sender<usize>,
    answered: bool,
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.vanished.send_modify(|gone| *gone += 1);
        }
    }
}

#[async_trait]
impl Controller for FakeController {
    async fn poll(&self, ask: PollRequest) -> Result<Vec<Assignment>, ApiError> {
        let mut asker = Asker {
            vanished: &self.0.vanished,
            answered: false,
        };
        self.0.asks.send_modify(|asks| asks.push(ask.clone()));
        let mut stopped = self.0.stopped.subscribe();
        let found = async {
            loop {
                let tasks = self.take(&ask);
                if !tasks.is_empty() {
                    return Ok(tasks);
                }
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => {
                        return Err(ApiError::unavailable("the controller is stopping"));
                    }
                    () = self.0.arrived.notified() => {}
                }
            }
        };
        let found = tokio::time::timeout(ask.wait, found).await;
        asker.answered = true;
        found.unwrap_or_else(|_| Ok(Vec::new()))
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let reported = ReportAck {
            state: StateKind::Enqueued,
            cancel_requested: false,
            lease: None,
        };
        let answers = reports.iter().map(|_| Ok(reported)).collect();
        self.0.reports.send_modify(|seen| seen.extend(reports));
        answers
    }

    async fn register_worker(&self, _: Registration) -> Result<Registered, ApiError> {
        Err(ApiError::unavailable("an unexpected call"))
    }

    async fn deregister_worker(&self, _: &WorkerId) -> Result<(), ApiError> {
        Ok(())
    }
}
