//! Claims of the tasks of messages.

use std::time::Duration;

use bytes::Bytes;
use dueline_api::{Action, ErrorKind, ErrorReason, StatusController as _};
use dueline_domain::{
    Event, Jitter, JobName, Overrides, Policy, RetryPolicy, StateKind, TaskOptions, Trigger, Weight,
};
use dueline_ports::{Clock as _, Rng as _};

use crate::bench::{Bench, mail, retriable, success, worker};

#[tokio::test(start_paused = true)]
async fn a_claimed_task_comes_with_all_fields_that_a_run_needs() {
    let bench = Bench::new().await;
    let overrides = Some(Overrides {
        heartbeat_timeout: Some(Duration::from_secs(41)),
        run_timeout: Some(Duration::from_secs(43)),
        ..Overrides::default()
    });
    let new = dueline_domain::NewTask {
        weight: Weight::new(3).unwrap(),
        options: Some(Box::new(TaskOptions {
            name: Some("a name".into()),
            content_type: Some("text/plain".into()),
            trace: Some("00-trace".into()),
            overrides,
            ..TaskOptions::default()
        })),
        ..bench.new_task()
    };
    let message = bench.submit(new).await;
    tokio::time::advance(Duration::from_millis(30)).await;
    let got = bench.try_claim("w", &message).await.unwrap();
    assert_eq!(
        (&got.job, got.id, got.token),
        (&mail(), message.id, message.token)
    );
    assert_eq!((got.attempt, got.input.as_ref()), (0, &b"payload"[..]));
    assert_eq!(got.name.as_deref(), Some("a name"));
    assert_eq!(got.content_type.as_deref(), Some("text/plain"));
    assert_eq!(got.trace.as_deref(), Some("00-trace"));
    assert_eq!(got.weight.get(), 3);
    assert_eq!(got.run_at, message.due_at);
    assert_eq!(got.claimed_at, bench.clock.now());
    assert_eq!(&*got.handler.kind, "exec");
    assert_eq!(got.claim_timeout, Policy::default().claim_timeout);
    assert_eq!(got.heartbeat_timeout, Duration::from_secs(41));
    assert_eq!(got.heartbeat_increment, Duration::from_secs(41));
    assert_eq!(got.run_timeout, Some(Duration::from_secs(43)));
    assert!(!got.start_first && !got.started_before);
    let task = bench.task(message.id).await;
    assert_eq!(task.kind(), StateKind::Claimed);
    assert_eq!(task.lease().unwrap().worker, worker("w"));
}

#[tokio::test(start_paused = true)]
async fn f_072_a_second_claim_is_refused_for_good_with_the_owner() {
    let bench = Bench::new().await;
    let message = bench.submit(bench.new_task()).await;
    bench.try_claim("w", &message).await.unwrap();
    for name in ["v", "w"] {
        let refused = bench.try_claim(name, &message).await.unwrap_err();
        assert_eq!(refused.reason().name(), "already_claimed");
        assert_eq!(refused.owner(), Some(&worker("w")));
        assert!(!refused.is_retryable(), "the message can be deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_message_is_refused_for_good() {
    let bench = Bench::new().await;
    let message = bench.submit(bench.new_task()).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let task = bench.task(message.id).await;
    let trigger = Event::Trigger(Trigger {
        seen: task.kind(),
        seen_at: task.state.trigger_at().unwrap(),
        token: bench.rng.token(),
        jitter: Jitter::default(),
    });
    let task = bench.apply(message.id, trigger).await;
    let refused = bench.try_claim("w", &message).await.unwrap_err();
    assert_eq!(
        (refused.reason().name(), refused.is_retryable()),
        ("lost", false)
    );
    bench
        .try_claim("w", &task.message().unwrap())
        .await
        .unwrap();

    let done = bench.started("w").await;
    let message = bench.task(done.id).await;
    bench.report(&done, success()).await.unwrap();
    let stale = dueline_domain::TaskRef {
        id: message.id,
        token: done.token,
        ..task.message().unwrap()
    };
    let refused = bench.try_claim("w", &stale).await.unwrap_err();
    assert_eq!(
        (refused.reason().name(), refused.is_retryable()),
        ("finished", false)
    );
}

#[tokio::test(start_paused = true)]
async fn answers_keep_the_order_of_the_messages() {
    let bench = Bench::new().await;
    let mut messages = Vec::new();
    for _ in 0..5 {
        messages.push(bench.submit(bench.new_task()).await);
    }
    bench.try_claim("early", &messages[3]).await.unwrap();
    messages[1].job = JobName::parse("unknown").unwrap();
    let mut unknown = messages[0].clone();
    unknown.id = bench.rng.task_id(bench.clock.now());
    messages.insert(2, unknown);
    let answers = bench
        .controller
        .claim(&worker("w"), messages.clone(), false)
        .await;
    let results: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(assignment) => Ok(assignment.id),
            Err(error) => Err((error.kind(), error.reason().clone())),
        })
        .collect();
    let expected = [
        Ok(messages[0].id),
        Err((ErrorKind::NotFound, ErrorReason::UnknownJob)),
        Err((ErrorKind::NotFound, ErrorReason::UnknownTask)),
        Ok(messages[3].id),
        Err((ErrorKind::Conflict, ErrorReason::AlreadyClaimed)),
        Ok(messages[5].id),
    ];
    assert_eq!(results, expected);
    assert!(
        bench
            .controller
            .claim(&worker("w"), vec![], false)
            .await
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn a_later_run_gets_the_checkpoint_its_attempt_and_start_first_on_the_last_try() {
    let bench = Bench::new().await;
    bench
        .put_job(Policy {
            retry: RetryPolicy {
                retries_max: Some(1),
                ..RetryPolicy::default()
            },
            ..Policy::default()
        })
        .await;
    let first = bench.started("w").await;
    assert!(!first.start_first);
    let payload = Bytes::from_static(b"half");
    let checkpoint = Action::Checkpoint { payload };
    bench.report(&first, checkpoint).await.unwrap();
    bench.report(&first, retriable()).await.unwrap();
    tokio::time::advance(Duration::from_secs(7)).await;
    let task = bench.task(first.id).await;
    let trigger = Event::Trigger(Trigger {
        seen: task.kind(),
        seen_at: task.state.trigger_at().unwrap(),
        token: bench.rng.token(),
        jitter: Jitter::default(),
    });
    let task = bench.apply(first.id, trigger).await;
    let second = bench
        .try_claim("w", &task.message().unwrap())
        .await
        .unwrap();
    assert_eq!((second.attempt, second.input.as_ref()), (1, &b"half"[..]));
    assert!(second.started_before);
    assert!(second.start_first, "a crash of the last try must count");
}
