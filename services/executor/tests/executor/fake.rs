//! A controller that tests script.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_api::{
    Action, ApiError, Assignment, Controller, ErrorKind, ErrorReason, PollRequest,
    PredecessorResult, Registered, Registration, Report, ReportAck,
};
use dueline_domain::{
    Handler as HandlerSpec, JobName, Outcome, StateKind, TaskAddress, TaskEnd, TaskId, Timestamp,
    Token, Weight, WorkerId,
};
use tokio::{sync::Notify, time::Instant};

type ReportAnswer = Box<dyn FnMut(&Report) -> Result<ReportAck, ApiError> + Send>;

/// Dispatches a queue of tasks and records all reports.
pub(crate) struct FakeController {
    state: Mutex<FakeState>,
    changed: Notify,
}

pub(crate) struct FakeState {
    pub(crate) queue: VecDeque<Assignment>,
    pub(crate) polls: Vec<PollRequest>,
    /// How many tasks were dispatched.
    pub(crate) dispatched: usize,
    /// All reports, with the time of sending.
    pub(crate) reports: Vec<(Instant, Report)>,
    pub(crate) batches: Vec<usize>,
    /// Tasks with a report in flight, to check that there is at most one for each task.
    in_flight: Vec<TaskId>,
    pub(crate) registrations: Vec<Registration>,
    pub(crate) deregistered: Vec<WorkerId>,
    /// How many registrations fail first.
    pub(crate) registration_failures: u32,
    /// The same field of the answer to registrations.
    pub(crate) claims_start: bool,
    answer: ReportAnswer,
    pub(crate) poll_takes: Duration,
    /// How long an answer with tasks takes after their claim.
    pub(crate) answer_takes: Duration,
    pub(crate) report_takes: Duration,
    /// Whether tasks are dispatched without regard to the polled weight.
    pub(crate) ignores_weight: bool,
    /// How many calls get one answer too few.
    pub(crate) short_answers: u32,
}

pub(crate) fn ok() -> Result<ReportAck, ApiError> {
    Ok(ReportAck {
        state: StateKind::Processing,
        cancel_requested: false,
        lease: None,
    })
}

pub(crate) fn lost() -> Result<ReportAck, ApiError> {
    let text = "another worker owns it";
    Err(ApiError::new(ErrorKind::Conflict, ErrorReason::Lost, text))
}

pub(crate) fn unavailable() -> Result<ReportAck, ApiError> {
    Err(ApiError::unavailable("the store is unavailable"))
}

impl FakeController {
    pub(crate) fn new() -> Arc<Self> {
        let state = FakeState {
            queue: VecDeque::new(),
            polls: Vec::new(),
            dispatched: 0,
            reports: Vec::new(),
            batches: Vec::new(),
            in_flight: Vec::new(),
            registrations: Vec::new(),
            deregistered: Vec::new(),
            registration_failures: 0,
            claims_start: false,
            answer: Box::new(|_| ok()),
            poll_takes: Duration::ZERO,
            answer_takes: Duration::ZERO,
            report_takes: Duration::ZERO,
            ignores_weight: false,
            short_answers: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn push(&self, tasks: impl IntoIterator<Item = Assignment>) {
        self.state().queue.extend(tasks);
        self.changed.notify_waiters();
    }

    pub(crate) fn answer(
        &self,
        answer: impl FnMut(&Report) -> Result<ReportAck, ApiError> + Send + 'static,
    ) {
        self.state().answer = Box::new(answer);
    }

    /// Waits until `check` returns a value.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut check: impl FnMut(&FakeState) -> Option<T>,
    ) -> T {
        let found = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(found) = check(&self.state()) {
                    return found;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(100), found).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain for {what}: {:?}", self.actions()),
        }
    }

    /// Waits for `n` reports whose actions match.
    pub(crate) async fn reported(
        &self,
        n: usize,
        matches: impl Fn(&Action) -> bool,
    ) -> Vec<Report> {
        self.until("reports", |state| {
            let all = state.reports.iter().map(|(_, report)| report);
            let found: Vec<_> = all.filter(|it| matches(&it.action)).cloned().collect();
            (found.len() >= n).then_some(found)
        })
        .await
    }

    /// Waits for the outcomes of `n` runs.
    pub(crate) async fn outcomes(&self, n: usize) -> Vec<(TaskId, Outcome)> {
        let reports = self.reported(n, is_finish).await;
        let outcome = |report: Report| match report.action {
            Action::Finish { outcome, .. } => (report.id, outcome),
            _ => unreachable!("only finishes match"),
        };
        reports.into_iter().map(outcome).collect()
    }

    /// Waits for the outcome of the only task.
    pub(crate) async fn outcome(&self) -> Outcome {
        self.outcomes(1).await.remove(0).1
    }

    pub(crate) fn actions(&self) -> Vec<Action> {
        let state = self.state();
        let actions = state.reports.iter().map(|(_, it)| it.action.clone());
        actions.collect()
    }
}

pub(crate) fn is_finish(action: &Action) -> bool {
    matches!(action, Action::Finish { .. })
}

pub(crate) fn is_abandon(action: &Action) -> bool {
    matches!(action, Action::Abandon)
}

#[async_trait]
impl Controller for FakeController {
    async fn poll(&self, request: PollRequest) -> Result<Vec<Assignment>, ApiError> {
        let polled_at = Instant::now();
        let (takes, until) = {
            let mut state = self.state();
            state.polls.push(request.clone());
            (state.poll_takes, polled_at + request.wait)
        };
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let (dispatched, answer_takes) = {
                let mut state = self.state();
                let mut dispatched = Vec::new();
                let mut weight_left = request.weight_max;
                while dispatched.len() < request.tasks_max {
                    let ignores_weight = state.ignores_weight;
                    let fits = |task: &mut Assignment| {
                        ignores_weight || u32::from(task.weight.get()) <= weight_left
                    };
                    let Some(mut task) = state.queue.pop_front_if(fits) else {
                        break;
                    };
                    task.started = request.start;
                    task.waited = polled_at.elapsed();
                    weight_left = weight_left.saturating_sub(task.weight.get().into());
                    dispatched.push(task);
                }
                state.dispatched += dispatched.len();
                (dispatched, state.answer_takes)
            };
            if !dispatched.is_empty() {
                if !answer_takes.is_zero() {
                    tokio::time::sleep(answer_takes).await;
                }
                return Ok(dispatched);
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(until) => return Ok(Vec::new()),
            }
        }
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let takes = {
            let mut state = self.state();
            state.batches.push(reports.len());
            for report in &reports {
                assert!(
                    !state.in_flight.contains(&report.id),
                    "two reports of {} at a time",
                    report.id
                );
                state.in_flight.push(report.id);
                state.reports.push((Instant::now(), report.clone()));
            }
            state.report_takes
        };
        self.changed.notify_waiters();
        let mut dropped_call = DroppedCall(self, Some(&reports));
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        dropped_call.1 = None;
        drop(dropped_call);
        let mut state = self.state();
        let answers = reports.iter().map(|report| {
            state.in_flight.retain(|id| *id != report.id);
            (state.answer)(report)
        });
        let mut answers: Vec<_> = answers.collect();
        if state.short_answers > 0 {
            state.short_answers -= 1;
            answers.pop();
        }
        drop(state);
        self.changed.notify_waiters();
        answers
    }

    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        let mut state = self.state();
        state.registrations.push(worker);
        if state.registration_failures > 0 {
            state.registration_failures -= 1;
            return Err(ApiError::unavailable("not yet"));
        }
        Ok(Registered {
            interval: Duration::from_secs(60),
            claims_start: state.claims_start,
        })
    }

    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        self.state().deregistered.push(worker.clone());
        Ok(())
    }
}

/// Removes the reports of a call from `in_flight` when its caller drops the call.
struct DroppedCall<'a>(&'a FakeController, Option<&'a [Report]>);

impl Drop for DroppedCall<'_> {
    fn drop(&mut self) {
        for report in self.1.unwrap_or_default() {
            let mut state = self.0.state();
            state.in_flight.retain(|id| *id != report.id);
        }
    }
}

/// A task of the job `job` with the default timeouts.
pub(crate) fn task(number: u16) -> Assignment {
    let mut id = [0; 16];
    id[14..].copy_from_slice(&number.to_be_bytes());
    Assignment {
        job: JobName::parse("job").unwrap(),
        id: TaskId::from_bytes(id),
        token: Token::from_random(u64::from(number) + 1),
        attempt: 0,
        input: Bytes::new(),
        content_type: None,
        name: None,
        weight: Weight::ONE,
        run_at: Timestamp::clamped(1_000_000),
        claimed_at: Timestamp::clamped(1_000_000),
        handler: HandlerSpec::worker(),
        claim_timeout: Duration::from_secs(10),
        heartbeat_timeout: Duration::from_secs(8),
        heartbeat_increment: Duration::from_secs(8),
        run_timeout: None,
        start_first: false,
        started_before: false,
        trace: None,
        started: false,
        results: Vec::new(),
        waited: Duration::ZERO,
    }
}

/// What predecessor `number` has returned; `None` for something that is too large to be passed on.
pub(crate) fn result(number: u16, bytes: Option<&'static [u8]>) -> PredecessorResult {
    let of = task(number);
    PredecessorResult {
        task: TaskAddress {
            job: of.job,
            id: of.id,
        },
        end: Some(TaskEnd::Succeeded),
        bytes: Some(bytes.map_or(70_000, |bytes| bytes.len() as u64)),
        result: bytes.map(Bytes::from_static),
    }
}

/// A task of a built-in handler.
pub(crate) fn built_in(kind: &str, config: &str, input: impl Into<Bytes>) -> Assignment {
    Assignment {
        handler: HandlerSpec {
            kind: Arc::from(kind),
            config: Arc::from(config),
        },
        input: input.into(),
        ..task(1)
    }
}

pub(crate) fn number(id: TaskId) -> u16 {
    let bytes = id.as_bytes();
    u16::from_be_bytes([bytes[14], bytes[15]])
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Whether a failure is fatal, and its text.
#[track_caller]
pub(crate) fn error_of(outcome: &Outcome) -> (bool, &str) {
    match outcome {
        Outcome::Retriable { error, .. } => (false, error),
        Outcome::Fatal { error } => (true, error),
        _ => panic!("{outcome:?} is not a failure"),
    }
}

#[track_caller]
pub(crate) fn result_of(outcome: &Outcome) -> &[u8] {
    match outcome {
        Outcome::Success { result } => result.as_deref().unwrap_or_default(),
        _ => panic!("{outcome:?} is not a success"),
    }
}
