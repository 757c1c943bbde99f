//! Several status controllers as one.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{TaskRef, WorkerId};
use tokio::time::Instant;

use crate::{
    ApiError, Assignment, ErrorKind, ErrorReason, Registered, Registration, Report, ReportAck,
    ServedJob, StatusController,
};

/// A call that its caller gave up after this time or later counts against the one that was called. Callers that go
/// away at once have reasons of their own.
const GIVEN_UP_MIN: Duration = Duration::from_secs(1);

/// Several status controllers over one store, any of which will do: they hold no state of their own.
///
/// Calls go to one of them until it fails, then to the next; nothing leads back to an earlier one but its turn. A call
/// that surely had no effect is made again at the next one at once, each is asked once at most, and the last error is
/// the answer. So is a call whose outcome is unknown, except a claim: that one is answered as it is, because a
/// repetition could be refused although the first one went through. Errors of the store itself (it is throttled, full
/// or does not answer) are passed on, because the others have the same store.
pub struct StatusControllerFailover {
    all: Vec<Named>,
    /// Goes up with each failure; the one it stands for has the turn.
    turn: AtomicUsize,
}

struct Named {
    name: String,
    status: Arc<dyn StatusController>,
}

impl StatusControllerFailover {
    /// Status controllers with their names for the log; the first one is asked first. Refused when there are none.
    pub fn new(
        all: impl IntoIterator<Item = (String, Arc<dyn StatusController>)>,
    ) -> Result<Self, ApiError> {
        let named = all.into_iter();
        let all: Vec<_> = named.map(|(name, status)| Named { name, status }).collect();
        if all.is_empty() {
            return Err(ApiError::invalid(
                "uri",
                ErrorReason::Missing,
                "name at least one",
            ));
        }
        let turn = AtomicUsize::new(0);
        Ok(Self { all, turn })
    }

    fn calls(&self) -> Calls<'_> {
        Calls {
            any: self,
            turn: self.turn.load(Ordering::Relaxed),
            left: self.all.len(),
        }
    }

    fn named(&self, turn: usize) -> &Named {
        &self.all[turn % self.all.len()]
    }

    /// The one that had this turn has failed. Of many calls that see the same failure the first one counts.
    fn pass_turn(&self, turn: usize, why: &str) {
        let (next, order) = (turn.wrapping_add(1), Ordering::Relaxed);
        let passed = self.turn.compare_exchange(turn, next, order, order).is_ok();
        if passed && self.all.len() > 1 {
            let (from, to) = (&self.named(turn).name, &self.named(next).name);
            tracing::warn!(%from, %to, error = %why, "a status controller failed; the next one is asked");
        }
    }
}

impl fmt::Debug for StatusControllerFailover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.all.iter().map(|named| &named.name);
        f.debug_list().entries(names).finish()
    }
}

/// How a call failed that may go better elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Failure {
    /// It had no effect.
    Away,
    /// It may have had one.
    Unknown,
}

fn failure(error: &ApiError) -> Option<Failure> {
    match (error.kind(), error.reason()) {
        (ErrorKind::Unavailable, ErrorReason::Throttled | ErrorReason::StoreFull)
        | (ErrorKind::Deadline, ErrorReason::StoreUnavailable) => None,
        (ErrorKind::Unavailable, _) => Some(Failure::Away),
        (ErrorKind::Deadline, _) => Some(Failure::Unknown),
        _ => None,
    }
}

/// What an answer says about the one who gave it.
trait Answer {
    fn failed(&self) -> Option<(Failure, &ApiError)>;
}

impl<T> Answer for Result<T, ApiError> {
    fn failed(&self) -> Option<(Failure, &ApiError)> {
        let error = self.as_ref().err()?;
        Some((failure(error)?, error))
    }
}

/// Only when every item failed: one that was decided shows that all is well.
impl<T> Answer for Vec<Result<T, ApiError>> {
    fn failed(&self) -> Option<(Failure, &ApiError)> {
        let mut worst = None;
        for item in self {
            let (failure, error) = item.failed()?;
            worst = worst
                .filter(|(known, _)| *known >= failure)
                .or(Some((failure, error)));
        }
        worst
    }
}

/// One call and its repetitions.
struct Calls<'a> {
    any: &'a StatusControllerFailover,
    turn: usize,
    left: usize,
}

impl<'a> Calls<'a> {
    fn begin(&self) -> Call<'a> {
        Call {
            any: self.any,
            turn: self.turn,
            since: Instant::now(),
            is_answered: false,
        }
    }

    /// Whether to call the next one. `repeats` are the failures after which that is safe.
    fn go_on(&mut self, mut call: Call<'a>, answer: &impl Answer, repeats: Failure) -> bool {
        call.is_answered = true;
        let Some((failure, error)) = answer.failed() else {
            return false;
        };
        self.any.pass_turn(self.turn, error.message());
        self.turn = self.turn.wrapping_add(1);
        self.left -= 1;
        self.left > 0 && failure <= repeats
    }
}

/// A call under way. One that is dropped before its answer came was given up by its caller.
struct Call<'a> {
    any: &'a StatusControllerFailover,
    turn: usize,
    since: Instant,
    is_answered: bool,
}

impl Call<'_> {
    fn status(&self) -> &dyn StatusController {
        &*self.any.named(self.turn).status
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.since.elapsed() >= GIVEN_UP_MIN {
            self.any.pass_turn(self.turn, "no answer in time");
        }
    }
}

#[async_trait]
impl StatusController for StatusControllerFailover {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        let mut calls = self.calls();
        loop {
            let call = calls.begin();
            let answers = call.status().claim(worker, messages.clone(), start).await;
            if !calls.go_on(call, &answers, Failure::Away) {
                return answers;
            }
        }
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let mut calls = self.calls();
        loop {
            let call = calls.begin();
            let answers = call.status().report(reports.clone()).await;
            if !calls.go_on(call, &answers, Failure::Unknown) {
                return answers;
            }
        }
    }

    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        let mut calls = self.calls();
        loop {
            let call = calls.begin();
            let answer = call.status().register_worker(worker.clone()).await;
            if !calls.go_on(call, &answer, Failure::Unknown) {
                return answer;
            }
        }
    }

    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let mut calls = self.calls();
        loop {
            let call = calls.begin();
            let answer = call.status().deregister_worker(worker).await;
            if !calls.go_on(call, &answer, Failure::Unknown) {
                return answer;
            }
        }
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        let mut calls = self.calls();
        loop {
            let call = calls.begin();
            let answer = call.status().jobs().await;
            if !calls.go_on(call, &answer, Failure::Unknown) {
                return answer;
            }
        }
    }
}
