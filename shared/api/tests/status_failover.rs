//! Several status controllers as one.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::{
    Action, ApiError, Assignment, ErrorKind, ErrorReason, Registered, Registration, Report,
    ReportAck, ServedJob, StatusController, StatusControllerFailover,
};
use dueline_domain::{
    JobName, Priority, StateKind, TaskId, TaskRef, Timestamp, Token, Weight, WorkerId, WriteId,
};

/// A status controller that works, or fails each item of each call in the same way.
#[derive(Default)]
struct Fake {
    fails: Mutex<Option<ApiError>>,
    /// Fails only the items before this one.
    failing_items: AtomicUsize,
    hangs: Mutex<bool>,
    reports: Mutex<Vec<Report>>,
    calls: AtomicUsize,
}

impl Fake {
    fn fails(&self, error: Option<ApiError>) {
        self.failing_items.store(usize::MAX, Ordering::SeqCst);
        *self.fails.lock().unwrap() = error;
    }

    /// The number of calls since this was asked last.
    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }

    async fn called(&self) -> Result<(), ApiError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let hangs = *self.hangs.lock().unwrap();
        if hangs {
            std::future::pending::<()>().await;
        }
        self.fails.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    /// The answers to `count` items.
    async fn items<T>(&self, count: usize, good: impl Fn() -> T) -> Vec<Result<T, ApiError>> {
        let called = self.called().await;
        let failing = self.failing_items.load(Ordering::SeqCst);
        let item = |at| match &called {
            Err(error) if at < failing => Err(error.clone()),
            _ => Ok(good()),
        };
        (0..count).map(item).collect()
    }
}

#[async_trait]
impl StatusController for Fake {
    async fn claim(
        &self,
        _: &WorkerId,
        messages: Vec<TaskRef>,
        _: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        // A claim that is decided is as good as one that is granted.
        let stale = || {
            Err(ApiError::new(
                ErrorKind::Conflict,
                ErrorReason::Lost,
                "stale",
            ))
        };
        let answers = self.items(messages.len(), stale).await;
        answers.into_iter().map(Result::flatten).collect()
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let reported = || ReportAck {
            state: StateKind::Processing,
            cancel_requested: false,
            lease: None,
        };
        let answers = self.items(reports.len(), reported).await;
        self.reports.lock().unwrap().extend(reports);
        answers
    }

    async fn register_worker(&self, _: Registration) -> Result<Registered, ApiError> {
        self.called().await?;
        Ok(Registered {
            interval: Duration::from_secs(2),
            claims_start: false,
        })
    }

    async fn deregister_worker(&self, _: &WorkerId) -> Result<(), ApiError> {
        self.called().await
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        self.called().await.map(|()| Vec::new())
    }
}

/// Two of them as one.
fn two() -> (Arc<Fake>, Arc<Fake>, StatusControllerFailover) {
    let (first, second) = (Arc::<Fake>::default(), Arc::<Fake>::default());
    let all: [(String, Arc<dyn StatusController>); 2] = [
        ("first".into(), first.clone()),
        ("second".into(), second.clone()),
    ];
    let any = StatusControllerFailover::new(all).unwrap();
    (first, second, any)
}

fn away() -> Option<ApiError> {
    Some(ApiError::unavailable("not there"))
}

fn unknown() -> Option<ApiError> {
    Some(ApiError::new(
        ErrorKind::Deadline,
        ErrorReason::AnswerLost,
        "lost",
    ))
}

fn worker() -> WorkerId {
    WorkerId::new("w", 1).unwrap()
}

fn message(number: u8) -> TaskRef {
    TaskRef {
        job: JobName::parse("a").unwrap(),
        id: TaskId::from_bytes([number; 16]),
        token: Token::from_random(7),
        priority: Priority::default(),
        weight: Weight::ONE,
        due_at: Timestamp::EPOCH,
        trace: None,
    }
}

fn heartbeats(count: u8) -> Vec<Report> {
    let heartbeat = |number| Report {
        job: JobName::parse("a").unwrap(),
        id: TaskId::from_bytes([number; 16]),
        token: Token::from_random(7),
        write: WriteId::from_random(u64::from(number) + 1),
        action: Action::Heartbeat,
        trace: None,
    };
    (0..count).map(heartbeat).collect()
}

fn registration() -> Registration {
    Registration {
        worker: worker(),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 1,
        embedded: false,
        kind: dueline_ports::ProcessKind::Executor,
        metadata: dueline_ports::Metadata::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_first_is_down_the_second_serves_every_call() {
    let calls = |fake: &Fake| fake.calls();
    for repeated in [away(), unknown()] {
        for verb in 0..4 {
            let (first, second, any) = two();
            first.fails(repeated.clone());
            let is_good = match verb {
                0 => any.register_worker(registration()).await.is_ok(),
                1 => any.deregister_worker(&worker()).await.is_ok(),
                2 => any.jobs().await.is_ok(),
                _ => any.report(heartbeats(3)).await.iter().all(Result::is_ok),
            };
            assert!(is_good, "verb {verb} after {repeated:?}");
            assert_eq!((calls(&first), calls(&second)), (1, 1));
            // A repeated report is the same write.
            assert_eq!(
                *second.reports.lock().unwrap(),
                *first.reports.lock().unwrap()
            );
            any.jobs().await.unwrap();
            assert_eq!((calls(&first), calls(&second)), (0, 1), "it sticks");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_is_not_asked_until_its_turn_comes() {
    let (first, second, any) = two();
    first.fails(away());
    any.jobs().await.unwrap();
    first.fails(None);
    first.calls();
    for _ in 0..10 {
        any.jobs().await.unwrap();
        any.report(heartbeats(2)).await;
    }
    assert_eq!(first.calls(), 0);
    second.fails(away());
    any.jobs().await.unwrap();
    any.jobs().await.unwrap();
    assert_eq!(first.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn when_all_are_down_the_last_error_is_told_and_each_was_asked_once() {
    let (first, second, any) = two();
    first.fails(away());
    let last = ApiError::unavailable("neither");
    second.fails(Some(last.clone()));
    assert_eq!(any.jobs().await, Err(last.clone()));
    let refused = any.report(heartbeats(2)).await;
    assert_eq!(refused, [Err(last.clone()), Err(last.clone())]);
    let refused = any.claim(&worker(), vec![message(1)], true).await;
    assert_eq!(refused, [Err(last)]);
    assert_eq!((first.calls(), second.calls()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_made_elsewhere_only_when_it_surely_had_no_effect() {
    let (first, second, any) = two();
    first.fails(away());
    let claimed = any.claim(&worker(), vec![message(1)], true).await;
    assert_eq!(claimed[0].as_ref().unwrap_err().reason().name(), "lost");
    assert_eq!((first.calls(), second.calls()), (1, 1));

    let (first, second, any) = two();
    first.fails(unknown());
    let claimed = any.claim(&worker(), vec![message(1)], true).await;
    assert_eq!(
        claimed[0].as_ref().unwrap_err().reason().name(),
        "answer_lost"
    );
    assert_eq!((first.calls(), second.calls()), (1, 0));
    any.claim(&worker(), vec![message(2)], true).await;
    assert_eq!((first.calls(), second.calls()), (0, 1), "the next claim");
}

#[tokio::test(start_paused = true)]
async fn troubles_of_the_store_and_of_single_items_are_passed_on() {
    let (first, second, any) = two();
    for (kind, reason) in [
        (ErrorKind::Unavailable, ErrorReason::Throttled),
        (ErrorKind::Unavailable, ErrorReason::StoreFull),
        (ErrorKind::Deadline, ErrorReason::StoreUnavailable),
        (ErrorKind::Conflict, ErrorReason::Lost),
    ] {
        let error = ApiError::new(kind, reason, "no");
        first.fails(Some(error.clone()));
        assert_eq!(any.jobs().await, Err(error.clone()));
        assert_eq!(any.report(heartbeats(1)).await, [Err(error)]);
    }
    first.fails(away());
    first.failing_items.store(1, Ordering::SeqCst);
    let answers = any.report(heartbeats(2)).await;
    assert!(answers[0].is_err() && answers[1].is_ok());
    assert!(any.report(Vec::new()).await.is_empty());
    assert_eq!(second.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_given_up_for_its_silence_loses_its_turn() {
    let (first, second, any) = two();
    *first.hangs.lock().unwrap() = true;
    let at_once = tokio::time::timeout(Duration::from_millis(10), any.jobs()).await;
    assert!(at_once.is_err());
    assert_eq!((first.calls(), second.calls()), (1, 0));
    let given_up = tokio::time::timeout(Duration::from_secs(5), any.jobs()).await;
    assert!(given_up.is_err());
    assert_eq!((first.calls(), second.calls()), (1, 0));
    any.jobs().await.unwrap();
    assert_eq!((first.calls(), second.calls()), (0, 1));
}
