//! What a run is told and how its end is reported.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dueline_api::{Action, Assignment, ErrorKind};
use dueline_domain::{Outcome, RetryClass, Timestamp};
use dueline_executor::{Failure, HandlerResult, Registry, RunningTask, Success, handler_fn};
use tokio::time::Instant;

use crate::fake::{error_of, is_finish, ms, ok, result_of, task};
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
        rig.work.push([Assignment {
            input,
            ..task(number)
        }]);
        outcomes = rig.work.outcomes(n + 1).await;
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
async fn f_042_an_explicit_finish_wins_and_a_second_one_is_refused() {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let rig = Rig::start(registry(move |task| {
        let seen = seen.clone();
        async move {
            task.fail("no luck").await?;
            let second = task.succeed(Bytes::from("late")).await;
            seen.lock().unwrap().extend(second.err());
            let late = task.checkpoint("late").await;
            seen.lock().unwrap().extend(late.err());
            tokio::time::sleep(ms(30_000)).await;
            Ok(Success::default())
        }
    }));
    rig.work.push([task(1)]);
    assert_eq!(error_of(&rig.work.outcome().await), (false, "no luck"));
    let work = rig.work.clone();
    rig.drain().await;
    let finishes = work.actions().iter().filter(|it| is_finish(it)).count();
    assert_eq!(finishes, 1, "one run has one outcome");
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 2);
    for error in errors.iter() {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(error.reason(), "finished");
    }
}

#[tokio::test(start_paused = true)]
async fn f_040_a_run_can_read_all_about_its_task() {
    let told = Arc::new(Mutex::new(None));
    let seen = told.clone();
    let rig = Rig::start(registry(move |task| {
        *seen.lock().unwrap() = Some(task);
        async { Ok(Success::default()) }
    }));
    let given = Assignment {
        attempt: 2,
        input: Bytes::from("input"),
        content_type: Some(Arc::from("text/plain")),
        name: Some(Arc::from("a name")),
        started_before: true,
        ..task(3)
    };
    rig.work.push([given.clone()]);
    rig.work.outcome().await;
    let task = told.lock().unwrap().take().unwrap();
    assert_eq!((task.attempt(), task.id()), (2, given.id));
    assert_eq!((task.job(), task.token()), (&given.job, given.token));
    assert_eq!(task.input(), "input");
    assert_eq!(task.content_type(), Some("text/plain"));
    assert_eq!(task.name(), Some("a name"));
    assert_eq!(task.run_at(), given.run_at);
    assert!(task.started_before() && task.stop_reason().is_none());
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_at_once_is_one_report() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.work.push([task(1)]);
    rig.work.outcome().await;
    let work = rig.work.clone();
    rig.drain().await;
    let merged = Action::Finish {
        started_at: Some(Timestamp::clamped(1_000_000)),
        outcome: Outcome::Success { result: None },
    };
    assert_eq!(work.actions(), [merged]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lasts_reports_its_start_before_its_end() {
    let rig = Rig::start(registry(|_| async {
        tokio::time::sleep(ms(20)).await;
        Ok(Success::default())
    }));
    // The run ends while its start is still under way.
    rig.work.state().report_takes = ms(100);
    rig.work.push([task(1)]);
    rig.work.outcome().await;
    let work = rig.work.clone();
    rig.drain().await;
    let end = Action::Finish {
        started_at: None,
        outcome: Outcome::Success { result: None },
    };
    assert_eq!(work.actions(), [Action::Start, end]);
}

#[tokio::test(start_paused = true)]
async fn on_the_last_try_the_handler_waits_for_a_durable_start() {
    let started = Arc::new(Mutex::new(None));
    let (begun, seen) = (Instant::now(), started.clone());
    let rig = Rig::start(registry(move |_| {
        *seen.lock().unwrap() = Some(begun.elapsed());
        async { Ok(Success::default()) }
    }));
    rig.work.state().report_takes = ms(500);
    rig.work.push([Assignment {
        start_first: true,
        ..task(1)
    }]);
    rig.work.outcome().await;
    assert!(started.lock().unwrap().unwrap() >= ms(500));
    let actions = rig.work.actions();
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
    rig.work.answer(|_| crate::fake::lost());
    rig.work.push([Assignment {
        start_first: true,
        ..task(1)
    }]);
    let started = rig.work.reported(1, |it| matches!(it, Action::Start)).await;
    assert_eq!(started.len(), 1);
    let (work, executor) = (rig.work.clone(), rig.executor.clone());
    rig.drain().await;
    assert_eq!(work.actions(), [Action::Start]);
    assert_eq!(executor.counts().started, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_handler_is_tried_again_later_and_says_why() {
    let rig = Rig::start(Registry::default());
    rig.work.push([task(1)]);
    let outcome = rig.work.outcome().await;
    assert!(error_of(&outcome).1.contains("no handler for job 'job'"));
    let slow = RetryClass::Slow;
    assert!(matches!(outcome, Outcome::Retriable { class, .. } if class == slow));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_in_the_first_moment_follows_the_start() {
    let rig = Rig::start(registry(|task| async move {
        task.checkpoint("half way").await?;
        Err(Failure::fatal("stopped there"))
    }));
    rig.work.push([task(1)]);
    let outcome = rig.work.outcome().await;
    assert_eq!(error_of(&outcome), (true, "stopped there"));
    let actions = rig.work.actions();
    let payload = Bytes::from("half way");
    assert_eq!(
        actions[..2],
        [Action::Start, Action::Checkpoint { payload }]
    );
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_result_becomes_a_failure_instead_of_an_endless_repetition() {
    let rig = Rig::start(registry(|_| async { Ok(Success::from(vec![0; 9])) }));
    rig.work.answer(|report| match &report.action {
        Action::Finish {
            outcome: Outcome::Success { .. },
            ..
        } => Err(dueline_api::ApiError::new(
            ErrorKind::TooLarge,
            "too_large",
            "9 is too much",
        )),
        _ => ok(),
    });
    rig.work.push([task(1)]);
    let outcomes = rig.work.outcomes(2).await;
    assert!(error_of(&outcomes[1].1).1.contains("9 is too much"));
    rig.drain().await;
}
