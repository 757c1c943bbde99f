//! A controller that does as it is told.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_api::{
    Action, Alive, ApiError, Assignment, ErrorKind, NextWork, Registration, Report, Reported, Work,
};
use dueline_domain::{
    Handler as HandlerSpec, JobName, Outcome, StateKind, TaskId, Timestamp, Token, Weight, WorkerId,
};
use tokio::{sync::Notify, time::Instant};

type Answer = Box<dyn FnMut(&Report) -> Result<Reported, ApiError> + Send>;

/// Hands out a queue of tasks and keeps what is reported.
pub(crate) struct FakeWork {
    state: Mutex<State>,
    changed: Notify,
}

pub(crate) struct State {
    pub(crate) queue: VecDeque<Assignment>,
    pub(crate) asks: Vec<NextWork>,
    /// Tasks handed out.
    pub(crate) given: usize,
    /// Everything that was ever sent, with the time of sending.
    pub(crate) reports: Vec<(Instant, Report)>,
    pub(crate) batches: Vec<usize>,
    /// Tasks with a report under way, to see that there is never a second one.
    under_way: Vec<TaskId>,
    pub(crate) alive: Vec<Registration>,
    pub(crate) left: Vec<WorkerId>,
    /// How many registrations fail first.
    pub(crate) alive_failures: u32,
    /// What workers are told.
    pub(crate) claims_start: bool,
    answer: Answer,
    pub(crate) next_takes: Duration,
    /// How long the tasks of an answer are on their way after their claim.
    pub(crate) answer_takes: Duration,
    pub(crate) report_takes: Duration,
    /// Whether weights are disregarded.
    pub(crate) is_careless: bool,
    /// How many calls get one answer too few.
    pub(crate) short_answers: u32,
}

pub(crate) fn ok() -> Result<Reported, ApiError> {
    Ok(Reported {
        state: StateKind::Processing,
        cancel_requested: false,
        lease: None,
    })
}

pub(crate) fn lost() -> Result<Reported, ApiError> {
    Err(ApiError::new(ErrorKind::Conflict, "lost", "not yours"))
}

pub(crate) fn away() -> Result<Reported, ApiError> {
    Err(ApiError::unavailable("the store is away"))
}

impl FakeWork {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            queue: VecDeque::new(),
            asks: Vec::new(),
            given: 0,
            reports: Vec::new(),
            batches: Vec::new(),
            under_way: Vec::new(),
            alive: Vec::new(),
            left: Vec::new(),
            alive_failures: 0,
            claims_start: false,
            answer: Box::new(|_| ok()),
            next_takes: Duration::ZERO,
            answer_takes: Duration::ZERO,
            report_takes: Duration::ZERO,
            is_careless: false,
            short_answers: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn push(&self, tasks: impl IntoIterator<Item = Assignment>) {
        self.state().queue.extend(tasks);
        self.changed.notify_waiters();
    }

    pub(crate) fn answer(
        &self,
        answer: impl FnMut(&Report) -> Result<Reported, ApiError> + Send + 'static,
    ) {
        self.state().answer = Box::new(answer);
    }

    /// Waits until `look` finds what it wants.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&State) -> Option<T>,
    ) -> T {
        let found = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(found) = look(&self.state()) {
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

    /// Waits for `n` reports that `wanted` picks.
    pub(crate) async fn reported(&self, n: usize, wanted: impl Fn(&Action) -> bool) -> Vec<Report> {
        self.until("reports", |state| {
            let all = state.reports.iter().map(|(_, report)| report);
            let found: Vec<_> = all.filter(|it| wanted(&it.action)).cloned().collect();
            (found.len() >= n).then_some(found)
        })
        .await
    }

    /// Waits for the outcomes of `n` runs.
    pub(crate) async fn outcomes(&self, n: usize) -> Vec<(TaskId, Outcome)> {
        let reports = self.reported(n, is_finish).await;
        let outcome = |report: Report| match report.action {
            Action::Finish { outcome, .. } => (report.id, outcome),
            _ => unreachable!("only outcomes were asked for"),
        };
        reports.into_iter().map(outcome).collect()
    }

    /// The outcome of the only task there is.
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
impl Work for FakeWork {
    async fn next(&self, ask: NextWork) -> Result<Vec<Assignment>, ApiError> {
        let asked = Instant::now();
        let (takes, until) = {
            let mut state = self.state();
            state.asks.push(ask.clone());
            (state.next_takes, asked + ask.wait)
        };
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let (given, answer_takes) = {
                let mut state = self.state();
                let mut given = Vec::new();
                let mut weight_left = ask.weight_max;
                while given.len() < ask.tasks_max {
                    let is_careless = state.is_careless;
                    let fits = |task: &mut Assignment| {
                        is_careless || u32::from(task.weight.get()) <= weight_left
                    };
                    let Some(mut task) = state.queue.pop_front_if(fits) else {
                        break;
                    };
                    task.started = ask.start;
                    task.waited = asked.elapsed();
                    weight_left = weight_left.saturating_sub(task.weight.get().into());
                    given.push(task);
                }
                state.given += given.len();
                (given, state.answer_takes)
            };
            if !given.is_empty() {
                if !answer_takes.is_zero() {
                    tokio::time::sleep(answer_takes).await;
                }
                return Ok(given);
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(until) => return Ok(Vec::new()),
            }
        }
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        let takes = {
            let mut state = self.state();
            state.batches.push(reports.len());
            for report in &reports {
                assert!(
                    !state.under_way.contains(&report.id),
                    "two reports of {} at a time",
                    report.id
                );
                state.under_way.push(report.id);
                state.reports.push((Instant::now(), report.clone()));
            }
            state.report_takes
        };
        self.changed.notify_waiters();
        let mut given_up = GivenUp(self, Some(&reports));
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        given_up.1 = None;
        drop(given_up);
        let mut state = self.state();
        let answers = reports.iter().map(|report| {
            state.under_way.retain(|id| *id != report.id);
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

    async fn alive(&self, worker: Registration) -> Result<Alive, ApiError> {
        let mut state = self.state();
        state.alive.push(worker);
        if state.alive_failures > 0 {
            state.alive_failures -= 1;
            return Err(ApiError::unavailable("not yet"));
        }
        Ok(Alive {
            interval: Duration::from_secs(60),
            claims_start: state.claims_start,
        })
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), ApiError> {
        self.state().left.push(worker.clone());
        Ok(())
    }
}

/// A call that its caller gave up is not under way any more.
struct GivenUp<'a>(&'a FakeWork, Option<&'a [Report]>);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        for report in self.1.unwrap_or_default() {
            let mut state = self.0.state();
            state.under_way.retain(|id| *id != report.id);
        }
    }
}

/// A task of the job `job` with the default times.
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
        waited: Duration::ZERO,
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

/// The text of a failure, with whether it is fatal.
#[track_caller]
pub(crate) fn error_of(outcome: &Outcome) -> (bool, &str) {
    match outcome {
        Outcome::Retriable { error, .. } => (false, error),
        Outcome::Fatal { error } => (true, error),
        _ => panic!("{outcome:?} is no failure"),
    }
}

#[track_caller]
pub(crate) fn result_of(outcome: &Outcome) -> &[u8] {
    match outcome {
        Outcome::Success { result } => result.as_deref().unwrap_or_default(),
        _ => panic!("{outcome:?} is no success"),
    }
}
