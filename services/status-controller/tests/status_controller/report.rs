//! Reports of owners.

use std::time::Duration;

use dueline_api::{Action, ReportAck, StatusController as _};
use dueline_domain::{Event, Outcome, Policy, RunningCancel, StateKind};
use dueline_ports::Clock as _;

use crate::bench::{Bench, finish, retriable, success};

#[tokio::test(start_paused = true)]
async fn a_run_is_started_heartbeaten_and_finished() {
    let bench = Bench::new().await;
    let run = bench.claimed("w").await;
    let answer = bench.report(&run, Action::Start).await.unwrap();
    let lease = Some(Duration::from_secs(8));
    let expected = ReportAck {
        state: StateKind::Processing,
        cancel_requested: false,
        lease,
    };
    assert_eq!(answer, expected);
    tokio::time::advance(Duration::from_secs(5)).await;
    let answer = bench.report(&run, Action::Heartbeat).await.unwrap();
    assert_eq!(answer.lease, lease, "a heartbeat renews it from now on");
    let by = Duration::from_secs(100);
    let answer = bench.report(&run, Action::Extend { by }).await.unwrap();
    assert_eq!(answer.lease, Some(by));
    let answer = bench.report(&run, success()).await.unwrap();
    assert_eq!((answer.state, answer.lease), (StateKind::Succeeded, None));
    let task = bench.task(run.id).await;
    assert_eq!(task.result.as_deref(), Some(&b"result"[..]));
}

#[tokio::test(start_paused = true)]
async fn f_050_f_051_checkpoints_alone_keep_a_run_alive_and_the_next_one_gets_the_latest() {
    let bench = Bench::new().await;
    let run = bench.started("w").await;
    let timeout = Duration::from_secs(8);
    for step in 0..8 {
        tokio::time::advance(timeout - Duration::from_secs(1)).await;
        let payload = format!("step {step}").into();
        let answer = bench.report(&run, Action::Checkpoint { payload }).await;
        assert_eq!(answer.unwrap().lease, Some(timeout), "at step {step}");
    }
    // Without a further checkpoint the lease ends exactly when the last answer said.
    let lost_at = bench.task(run.id).await.state.trigger_at();
    assert_eq!(lost_at, Some(bench.clock.now().after(timeout)));
    tokio::time::advance(timeout).await;
    let task = bench.trigger(run.id).await;
    let late = bench.report(&run, Action::Heartbeat).await.unwrap_err();
    assert!(late.is_lost());
    let message = task.message().unwrap();
    let next = bench.try_claim("v", &message).await.unwrap();
    assert_eq!(next.input, "step 7");
    assert_eq!(task.payload, "payload", "the original stays");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_may_carry_the_start_with_it() {
    let bench = Bench::new().await;
    let run = bench.claimed("w").await;
    tokio::time::advance(Duration::from_millis(20)).await;
    let action = Action::Finish {
        started_at: Some(run.claimed_at),
        outcome: Outcome::Success { result: None },
    };
    let answer = bench.report(&run, action).await.unwrap();
    assert_eq!(answer.state, StateKind::Succeeded);
    assert_eq!(bench.task(run.id).await.started_at, Some(run.claimed_at));
}

#[tokio::test(start_paused = true)]
async fn a_report_whose_answer_was_lost_can_be_repeated() {
    let bench = Bench::new().await;
    let run = bench.started("w").await;
    let report = bench.report_of(&run, retriable());
    let first = bench.send(report.clone()).await.unwrap();
    let task = bench.task(run.id).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let again = bench.send(report).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(bench.task(run.id).await, task, "it happened once");
    // Another report of the same kind is not a repetition: that run has ended.
    let other = bench.report(&run, retriable()).await.unwrap_err();
    assert!(other.is_lost());
}

#[tokio::test(start_paused = true)]
async fn d_02_a_report_with_a_stale_token_is_refused_and_stores_nothing() {
    let bench = Bench::new().await;
    let run = bench.started("w").await;
    bench
        .controller
        .deregister_worker(&crate::bench::worker("w"))
        .await
        .unwrap();
    let reclaimed = bench.task(run.id).await;
    let payload = "stale".into();
    for action in [
        Action::Heartbeat,
        Action::Checkpoint { payload },
        success(),
        Action::Abandon,
    ] {
        let refused = bench.report(&run, action).await.unwrap_err();
        assert!(refused.is_lost(), "{refused:?}");
        assert!(!refused.is_retryable());
    }
    assert_eq!(bench.task(run.id).await, reclaimed);
}

#[tokio::test(start_paused = true)]
async fn f_075_an_abandoned_task_is_enqueued_at_once() {
    let bench = Bench::new().await;
    let run = bench.started("w").await;
    let answer = bench.report(&run, Action::Abandon).await.unwrap();
    assert_eq!((answer.state, answer.lease), (StateKind::Enqueued, None));
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert_ne!(sent[0].token, run.token);
    let next = bench.try_claim("v", &sent[0]).await.unwrap();
    assert_eq!((next.id, next.attempt), (run.id, 1), "a number of its own");
    assert_eq!(bench.task(run.id).await.tries, 0, "no try was used");
    assert!(next.started_before);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_is_signalled_to_waiting_clients() {
    let bench = Bench::new().await;
    for last in [
        success(),
        finish(Outcome::Fatal { error: "no".into() }),
        Action::Trash {
            reason: "broken".into(),
        },
    ] {
        let run = bench.started("w").await;
        let waiter = bench.ended.subscribe(run.id);
        bench.report(&run, Action::Heartbeat).await.unwrap();
        let wait = Duration::from_millis(1);
        let early = tokio::time::timeout(wait, waiter.signalled()).await;
        assert!(early.is_err(), "a heartbeat ends nothing");
        bench.report(&run, last).await.unwrap();
        let signalled = tokio::time::timeout(wait, waiter.signalled()).await;
        assert!(signalled.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn the_retry_time_of_a_failed_task_is_signalled_to_the_consumer() {
    let bench = Bench::new().await;
    let run = bench.started("w").await;
    assert_eq!(bench.due.take(), None);
    let answer = bench.report(&run, retriable()).await.unwrap();
    assert_eq!(answer.state, StateKind::Retriable);
    let retry_at = bench.clock.now().after(Duration::from_secs(7));
    assert_eq!(bench.due.take(), Some(retry_at));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_short_lease_is_signalled_to_the_consumer() {
    let (bench, half) = (Bench::new().await, Duration::from_millis(500));
    let policy = Policy {
        claim_timeout: half,
        heartbeat_timeout: half,
        heartbeat_increment: half,
        ..Policy::default()
    };
    bench.put_job(policy).await;
    let ends_at = || Some(bench.clock.now().after(half));
    let run = bench.claimed("w").await;
    assert_eq!(bench.due.take(), ends_at());
    tokio::time::advance(half / 2).await;
    for action in [Action::Start, Action::Heartbeat] {
        bench.report(&run, action).await.unwrap();
        assert_eq!(bench.due.take(), ends_at());
    }
    bench.report(&run, success()).await.unwrap();
    assert_eq!(bench.due.take(), None);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_request_reaches_the_worker_with_the_answer_to_any_report() {
    let bench = Bench::new().await;
    let run = bench.started("w").await;
    let running = RunningCancel::Request;
    let reason = None;
    bench.apply(run.id, Event::Cancel { running, reason }).await;
    let answer = bench.report(&run, Action::Heartbeat).await.unwrap();
    assert!(answer.cancel_requested);
    let answer = bench
        .report(&run, finish(Outcome::Cancelled))
        .await
        .unwrap();
    assert_eq!(answer.state, StateKind::Cancelled);
    assert!(!answer.cancel_requested);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_reports_is_answered_in_order_and_a_refused_one_does_not_affect_others() {
    let bench = Bench::new().await;
    let (a, b, c) = (
        bench.claimed("w").await,
        bench.started("w").await,
        bench.started("w").await,
    );
    let reports = vec![
        bench.report_of(&a, Action::Start),
        bench.report_of(&b, Action::Start),
        bench.report_of(&c, Action::Abandon),
        bench.report_of(&a, success()),
    ];
    let answers = bench.controller.report(reports).await;
    let results: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(ack) => Ok(ack.state),
            Err(error) => Err(error.reason().name()),
        })
        .collect();
    let expected = [
        Ok(StateKind::Processing),
        Err("already_started"),
        Ok(StateKind::Enqueued),
        Ok(StateKind::Succeeded),
    ];
    assert_eq!(results, expected);
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.task(b.id).await.kind(), StateKind::Processing);
}
