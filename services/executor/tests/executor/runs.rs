//! What a handler can read of its task, and how the end of its run is reported.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dueline_api::{Action, Assignment, ErrorKind, ErrorReason};
use dueline_domain::{Outcome, RetryClass, Timestamp};
use dueline_executor::{Failure, HandlerResult, Registry, RunningTask, Success, handler_fn};
use tokio::time::Instant;

use crate::fake::{error_of, is_abandon, is_finish, ms, ok, result_of, task};
use crate::rig::Rig;

pub(crate) fn registry<F, Fut>(run: F) -> Registry
where
    F: Fn(RunningTask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send,
{
    let handler = handler_fn(run);
    Registry::builder().job("job", handler).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn f_037_ok_err_and_panic_become_outcomes_and_the_executor_goes_on() {
    let rig = Rig::start(registry(|task| async move {
        match task.input().as_ref() {
            b"ok" => Ok(Success::from(Bytes::from("done"))),
            b"err" => Err("broken".into()),
            b"late panic" => {
                tokio::time::sleep(ms(50)).await;
                panic!("too {}", "late")
            }
            _ => panic!("at once"),
        }
    }));
    let mut outcomes = Vec::new();
    for (n, input) in ["panic", "late panic", "err", "ok"].into_iter().enumerate() {
        let input = Bytes::from(input);
        let number = u16::try_from(n).unwrap();
        rig.controller.push([Assignment {
            input,
            ..task(number)
        }]);
        outcomes = rig.controller.outcomes(n + 1).await;
    }
    let of = |n: usize| &outcomes[n].1;
    assert_eq!(error_of(of(0)), (false, "handler panicked: at once"));
    assert_eq!(error_of(of(1)), (false, "handler panicked: too late"));
    let broken = Outcome::Retriable {
        class: RetryClass::Standard,
        delay: None,
        error: Arc::from("broken"),
    };
    assert_eq!(*of(2), broken);
    assert_eq!(result_of(of(3)), b"done");
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_the_host_cannot_begin_uses_no_try_and_polling_pauses_longer_each_time() {
    let faults = Arc::new(Mutex::new(3));
    let one_by_one = |config: &mut dueline_executor::Config| {
        (config.concurrency, config.prefetch_max) = (1, 0);
    };
    let handler = registry(move |_| {
        let mut faults = faults.lock().unwrap();
        let is_fault = *faults > 0;
        *faults = i32::max(*faults - 1, 0);
        async move {
            if is_fault {
                let error = "too many open files".to_owned();
                return Err(Failure::Host { error });
            }
            Ok(().into())
        }
    });
    let rig = Rig::with(one_by_one, handler);
    let mut abandoned_at = Vec::new();
    for n in 0..3 {
        rig.controller.push([task(n)]);
        let abandoned = usize::from(n) + 1;
        rig.controller.reported(abandoned, is_abandon).await;
        abandoned_at.push(Instant::now());
        let fault = rig.executor.host_fault();
        assert_eq!(fault.as_deref(), Some("too many open files"));
    }
    rig.controller.push([task(3)]);
    assert_eq!(
        rig.controller.outcome().await,
        Outcome::Success { result: None }
    );
    let pauses: Vec<_> = abandoned_at.windows(2).map(|at| at[1] - at[0]).collect();
    assert!(pauses[0] >= ms(250) && pauses[1] >= ms(500), "{pauses:?}");
    assert_eq!(rig.executor.host_fault(), None);
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_042_an_explicit_finish_wins_and_a_second_one_is_refused() {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let recorded = errors.clone();
    let rig = Rig::start(registry(move |task| {
        let recorded = recorded.clone();
        async move {
            task.fail("failed").await?;
            let second = task.succeed(Bytes::from("late")).await;
            recorded.lock().unwrap().extend(second.err());
            let late = task.checkpoint("late").await;
            recorded.lock().unwrap().extend(late.err());
            tokio::time::sleep(ms(30_000)).await;
            Ok(Success::default())
        }
    }));
    rig.controller.push([task(1)]);
    let outcome = rig.controller.outcome().await;
    assert_eq!(error_of(&outcome), (false, "failed"));
    let controller = rig.controller.clone();
    rig.drain().await;
    let finishes = controller
        .actions()
        .iter()
        .filter(|it| is_finish(it))
        .count();
    assert_eq!(finishes, 1, "one run has one outcome");
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 2);
    for error in errors.iter() {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(error.reason().name(), "finished");
    }
}

#[tokio::test(start_paused = true)]
async fn f_040_a_handler_can_read_all_fields_of_its_task() {
    let handle = Arc::new(Mutex::new(None));
    let recorded = handle.clone();
    let rig = Rig::start(registry(move |task| {
        *recorded.lock().unwrap() = Some(task);
        async { Ok(Success::default()) }
    }));
    let assignment = Assignment {
        attempt: 2,
        input: Bytes::from("input"),
        content_type: Some(Arc::from("text/plain")),
        name: Some(Arc::from("a name")),
        started_before: true,
        ..task(3)
    };
    rig.controller.push([assignment.clone()]);
    rig.controller.outcome().await;
    let task = handle.lock().unwrap().take().unwrap();
    assert_eq!((task.attempt(), task.id()), (2, assignment.id));
    let ids = (&assignment.job, assignment.token);
    assert_eq!((task.job(), task.token()), ids);
    assert_eq!(task.input(), "input");
    assert_eq!(task.content_type(), Some("text/plain"));
    assert_eq!(task.name(), Some("a name"));
    assert_eq!(task.run_at(), assignment.run_at);
    assert!(task.started_before() && task.stop_reason().is_none());
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_at_once_is_one_report() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.controller.push([task(1)]);
    rig.controller.outcome().await;
    let controller = rig.controller.clone();
    rig.drain().await;
    let merged = Action::Finish {
        started_at: Some(Timestamp::clamped(1_000_000)),
        outcome: Outcome::Success { result: None },
    };
    assert_eq!(controller.actions(), [merged]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lasts_reports_its_start_before_its_end() {
    let rig = Rig::start(registry(|_| async {
        tokio::time::sleep(ms(20)).await;
        Ok(Success::default())
    }));
    // The run ends while its start is still in flight.
    rig.controller.state().report_takes = ms(100);
    rig.controller.push([task(1)]);
    rig.controller.outcome().await;
    let controller = rig.controller.clone();
    rig.drain().await;
    let end = Action::Finish {
        started_at: None,
        outcome: Outcome::Success { result: None },
    };
    assert_eq!(controller.actions(), [Action::Start, end]);
}

#[tokio::test(start_paused = true)]
async fn on_the_last_try_the_handler_waits_for_a_durable_start() {
    let started = Arc::new(Mutex::new(None));
    let (begun, recorded) = (Instant::now(), started.clone());
    let rig = Rig::start(registry(move |_| {
        *recorded.lock().unwrap() = Some(begun.elapsed());
        async { Ok(Success::default()) }
    }));
    rig.controller.state().report_takes = ms(500);
    rig.controller.push([Assignment {
        start_first: true,
        ..task(1)
    }]);
    rig.controller.outcome().await;
    assert!(started.lock().unwrap().unwrap() >= ms(500));
    let actions = rig.controller.actions();
    assert_eq!(actions[0], Action::Start);
    assert!(matches!(
        actions[1],
        Action::Finish {
            started_at: None,
            ..
        }
    ));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_try_whose_start_is_refused_never_runs() {
    let rig = Rig::start(registry(|_| async { panic!("must not run") }));
    rig.controller.answer(|_| crate::fake::lost());
    rig.controller.push([Assignment {
        start_first: true,
        ..task(1)
    }]);
    let started = rig
        .controller
        .reported(1, |it| matches!(it, Action::Start))
        .await;
    assert_eq!(started.len(), 1);
    let (controller, executor) = (rig.controller.clone(), rig.executor.clone());
    rig.drain().await;
    assert_eq!(controller.actions(), [Action::Start]);
    assert_eq!(executor.counts().started, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_handler_fails_retriably_with_the_reason() {
    let rig = Rig::start(Registry::default());
    rig.controller.push([task(1)]);
    let outcome = rig.controller.outcome().await;
    assert!(error_of(&outcome).1.contains("no handler for job 'job'"));
    let slow = RetryClass::Slow;
    assert!(matches!(outcome, Outcome::Retriable { class, .. } if class == slow));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_immediate_checkpoint_is_reported_after_the_start() {
    let rig = Rig::start(registry(|task| async move {
        task.checkpoint("half way").await?;
        Err(Failure::fatal("stopped there"))
    }));
    rig.controller.push([task(1)]);
    let outcome = rig.controller.outcome().await;
    assert_eq!(error_of(&outcome), (true, "stopped there"));
    let actions = rig.controller.actions();
    let payload = Bytes::from("half way");
    assert_eq!(
        actions[..2],
        [Action::Start, Action::Checkpoint { payload }]
    );
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_result_becomes_a_failure_and_is_not_repeated_for_ever() {
    let rig = Rig::start(registry(|_| async { Ok(Success::from(vec![0; 9])) }));
    rig.controller.answer(|report| match &report.action {
        Action::Finish {
            outcome: Outcome::Success { .. },
            ..
        } => Err(dueline_api::ApiError::new(
            ErrorKind::TooLarge,
            ErrorReason::TooLarge,
            "9 is too much",
        )),
        _ => ok(),
    });
    rig.controller.push([task(1)]);
    let outcomes = rig.controller.outcomes(2).await;
    assert!(error_of(&outcomes[1].1).1.contains("9 is too much"));
    rig.drain().await;
}
