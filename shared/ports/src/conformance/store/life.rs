//! The lifecycle of a task, from submit to end.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_domain::{
    Backoff, Event, Jitter, Modification, NewTask, Outcome, Policy, Reason, RetryClass,
    RetryPolicy, RunEnd, State, StateKind, Task, limits,
};

use super::kit::{StoreKit, at, enqueued_until, fatal, retriable, secs, success, token, worker};
use crate::{Rng as _, Store};

pub async fn a_task_lives_from_submit_to_success(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.task_due(1_000)).await;
    let task = kit.trigger(1_000, &task).await;
    assert_eq!(enqueued_until(&task), Some(at(61_000)));
    let task = kit.claim(1_010, &task, "w").await;
    let lease = task.lease().expect("a lease");
    assert_eq!(lease.worker, worker("w"));
    assert_eq!((task.started_at, task.tries), (None, 0));
    let task = kit.start(1_020, &task).await;
    assert_eq!((task.started_at, task.tries), (Some(at(1_020)), 1));
    let current = token(&task);
    let task = kit
        .apply(5_000, &task, Event::Heartbeat { token: current })
        .await;
    assert_eq!(task.state.trigger_at(), Some(at(13_000)));
    let task = kit.finish(6_000, &task, success("42")).await;
    assert_eq!(task.state, State::Succeeded);
    assert_eq!(task.result.as_deref(), Some(&b"42"[..]));
    assert_eq!(task.started_at, Some(at(1_020)));
    assert_eq!(task.finished_at, Some(at(6_000)));
    assert_eq!((task.run_at, task.created_at), (at(1_000), at(0)));
}

pub async fn claim_and_start_can_be_one_write(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(10, &task, "w").await;
    assert_eq!((task.kind(), task.tries), (StateKind::Processing, 1));
    let lease = task.lease().expect("a lease");
    assert_eq!((lease.claimed_at, task.started_at), (at(10), Some(at(10))));
    let empty = Outcome::Success { result: None };
    let task = kit.finish(20, &task, empty).await;
    assert_eq!((task.kind(), task.result), (StateKind::Succeeded, None));
}

pub async fn start_and_outcome_can_be_one_write(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.claim(10, &task, "w").await;
    let event = Event::Finish {
        token: token(&task),
        started_at: Some(at(12)),
        outcome: success("fast"),
        jitter: Jitter::default(),
    };
    let task = kit.apply(15, &task, event).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 1));
    assert_eq!(task.started_at, Some(at(12)));
}

pub async fn f_043_history_has_one_entry_per_run_that_failed(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut task = kit.create(0, kit.new_task()).await;
    for (n, error) in ["first", "sécond"].into_iter().enumerate() {
        let ms = i64::try_from(n).expect("small") * 100_000;
        task = kit.run(ms + 10, &task, "w").await;
        task = kit.finish(ms + 20, &task, retriable(error)).await;
        assert_eq!(task.error.as_deref(), Some(error));
        task = kit.trigger(ms + 90_000, &task).await;
    }
    let task = kit.run(300_000, &task, "w3").await;
    assert_eq!(task.last_owner, None);
    let task = kit.finish(300_001, &task, success("ok")).await;
    // A run that succeeded is not in the history.
    assert_eq!(task.last_owner, Some(worker("w3")));
    assert_eq!(task.latest_attempt(), Some(2));
    let runs = &task.history.as_ref().expect("a history").runs;
    let seen: Vec<_> = runs.iter().map(|r| (r.attempt, &*r.info, r.end)).collect();
    let end = RunEnd::Retriable;
    assert_eq!(seen, [(0, "first", end), (1, "sécond", end)]);
    assert_eq!(runs[1].started_at, at(100_010));
    assert_eq!(runs[1].finished_at, at(100_020));
    assert_eq!(task.tries, 3);
}

/// What a store keeps apart from a task is not read for a trigger. It must stay as it is, whatever happens meanwhile.
pub async fn f_154_a_trigger_keeps_the_payload_and_checkpoint_that_it_does_not_read(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    let large = |byte: u8| Bytes::from(vec![byte; 50_000]);
    let new = NewTask {
        payload: large(1),
        ..kit.task_due(1_000)
    };
    let task = kit.create(0, new).await;
    let trigger = async |ms: i64, task: &Task| {
        let command = kit.command(task, kit.trigger_event(task));
        let (once, again) = tokio::join!(kit.send(ms, command.clone()), kit.send(ms, command));
        assert!(once.is_ok() && again.is_ok(), "one of them is a repetition");
        kit.get(task).await
    };
    let task = trigger(1_000, &task).await;
    assert_eq!(
        (task.kind(), &task.payload),
        (StateKind::Enqueued, &large(1))
    );
    // Its message was lost.
    let task = trigger(61_000, &task).await;
    assert_eq!(task.payload, large(1));
    let task = kit.run(61_010, &task, "w").await;
    let event = Event::Checkpoint {
        token: token(&task),
        payload: large(2),
    };
    let task = kit.apply(61_020, &task, event).await;
    // Its worker was lost.
    let task = trigger(100_000, &task).await;
    let bodies = |task: &Task| (task.payload.clone(), task.checkpoint.clone());
    assert_eq!(task.kind(), StateKind::Enqueued);
    assert_eq!(bodies(&task), (large(1), Some(large(2))));
    // A user changes it while it is enqueued again. One of the two may come too late.
    let change = Modification {
        payload: Some(large(3)),
        ..Modification::default()
    };
    let modify = Event::Modify {
        change,
        token: kit.rng.token(),
    };
    let (modified, triggered) = tokio::join!(
        kit.send(160_000, kit.command(&task, modify)),
        kit.send(160_000, kit.command(&task, kit.trigger_event(&task))),
    );
    let payload = if modified.is_ok() { large(3) } else { large(1) };
    assert!(modified.is_ok() || triggered.is_ok());
    let task = kit.get(&task).await;
    assert_eq!(bodies(&task), (payload.clone(), Some(large(2))));
    let task = kit.run(160_010, &task, "w").await;
    assert_eq!(bodies(&task), (payload.clone(), Some(large(2))));
    let result = Some(large(4));
    let task = kit
        .finish(160_020, &task, Outcome::Success { result })
        .await;
    assert_eq!(bodies(&task), (payload, Some(large(2))));
    assert_eq!(task.result, Some(large(4)));
}

pub async fn f_050_a_checkpoint_is_kept_apart_from_the_payload(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut task = kit.create(0, kit.new_task()).await;
    for (n, text) in [(0, "first"), (1, "second")] {
        let ms = n * 100_000;
        task = kit.run(ms + 10, &task, "w").await;
        let event = Event::Checkpoint {
            token: token(&task),
            payload: Bytes::from_static(text.as_bytes()),
        };
        task = kit.apply(ms + 20, &task, event).await;
        task = kit.finish(ms + 30, &task, retriable("again")).await;
        task = kit.trigger(ms + 90_000, &task).await;
        assert_eq!(task.input().as_ref(), text.as_bytes());
        assert_eq!(task.payload.as_ref(), b"payload");
    }
    // An empty checkpoint is a checkpoint, not the absence of one.
    task = kit.run(200_000, &task, "w").await;
    let event = Event::Checkpoint {
        token: token(&task),
        payload: Bytes::new(),
    };
    task = kit.apply(200_001, &task, event).await;
    assert_eq!(task.checkpoint, Some(Bytes::new()));
}

pub async fn f_056_a_retriable_task_is_due_again_after_its_backoff(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let backoff = |s| Backoff::new(secs(s), 2.0, 0.5, secs(3_600)).expect("a backoff");
    kit.set_policy(Policy {
        retry: RetryPolicy {
            standard: backoff(2),
            slow: backoff(30),
            ..RetryPolicy::default()
        },
        ..Policy::default()
    })
    .await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(0, &task, "w").await;
    let event = Event::Finish {
        token: token(&task),
        started_at: None,
        outcome: retriable("down"),
        jitter: Jitter::from_random(1 << 63),
    };
    let task = kit.apply(1_000, &task, event).await;
    // Two seconds, plus half of the largest jitter, which is half of the wait.
    let retry_at = at(1_000 + 2_500);
    assert_eq!(task.state, State::Retriable { retry_at });
    assert_eq!(task.run_at, at(0), "f_011: the original time is kept");
    assert!(kit.due(3_499).await.tasks.is_empty());
    assert_eq!(kit.due(3_500).await.tasks.len(), 1);

    let task = kit.trigger(3_500, &task).await;
    let task = kit.run(3_500, &task, "w").await;
    let slow = Outcome::Retriable {
        class: RetryClass::Slow,
        delay: None,
        error: "down".into(),
    };
    let task = kit.finish(4_000, &task, slow).await;
    assert_eq!(task.state.trigger_at(), Some(at(64_000)));

    let task = kit.trigger(64_000, &task).await;
    let task = kit.run(64_000, &task, "w").await;
    let with_delay = Outcome::Retriable {
        class: RetryClass::Slow,
        delay: Some(secs(7)),
        error: "busy".into(),
    };
    let task = kit.finish(65_000, &task, with_delay).await;
    assert_eq!(task.state.trigger_at(), Some(at(72_000)));
}

pub async fn a_fatal_failure_ends_the_task_with_tries_left(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(1, &task, "w").await;
    let task = kit.finish(2, &task, fatal("no such file")).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Failed, 1));
    assert_eq!(task.error.as_deref(), Some("no such file"));
    let runs = &task.history.as_ref().expect("a history").runs;
    assert_eq!(runs[0].end, RunEnd::Fatal);
}

pub async fn a_task_without_a_try_left_fails(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(policy_with_retries(Some(1))).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(1, &task, "w").await;
    let task = kit.finish(2, &task, retriable("once")).await;
    let task = kit.trigger(900_000, &task).await;
    let task = kit.run(900_001, &task, "w").await;
    let task = kit.finish(900_002, &task, retriable("twice")).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Failed, 2));
}

fn policy_with_retries(retries_max: Option<u32>) -> Policy {
    Policy {
        retry: RetryPolicy {
            retries_max,
            ..RetryPolicy::default()
        },
        ..Policy::default()
    }
}

pub async fn a_lost_run_uses_a_try_and_its_task_is_enqueued_at_once(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(policy_with_retries(Some(1))).await;
    let task = kit.create(0, kit.new_task()).await;
    let first = token(&task);
    let task = kit.run(0, &task, "w").await;
    let early = kit.refused(7_999, &task, kit.trigger_event(&task)).await;
    assert_eq!(early, Reason::NotDue);
    let task = kit.trigger(8_000, &task).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 1));
    assert_ne!(token(&task), first);
    let runs = &task.history.as_ref().expect("a history").runs;
    assert_eq!((runs[0].end, &runs[0].worker), (RunEnd::Lost, &worker("w")));
    let task = kit.run(9_000, &task, "v").await;
    let task = kit.trigger(17_000, &task).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Failed, 2));
}

pub async fn a_lost_claim_uses_no_try(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.claim(0, &task, "w").await;
    let task = kit.trigger(10_000, &task).await;
    assert_eq!(task.kind(), StateKind::Enqueued);
    assert_eq!((task.tries, task.losses), (0, 1));
    assert_eq!(task.history, None);
}

pub async fn a_task_that_keeps_losing_its_claims_is_trashed(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        losses_max: 2,
        ..Policy::default()
    })
    .await;
    let mut task = kit.create(0, kit.new_task()).await;
    for round in 1..=3 {
        task = kit.claim(round * 20_000, &task, "w").await;
        task = kit.trigger(round * 20_000 + 10_000, &task).await;
    }
    assert_eq!((task.kind(), task.losses), (StateKind::Trashed, 3));
    let error = task.error.expect("a reason");
    assert!(error.contains("poison"), "{error}");
    assert_eq!(task.payload.as_ref(), b"payload", "kept for review");
}

pub async fn a_lost_message_is_replaced_without_using_a_try(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let stale = kit.claim_event(&task, "w", false);
    let task = kit.trigger(60_000, &task).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 0));
    assert_eq!(kit.refused(60_001, &task, stale).await, Reason::Lost);
    kit.claim(60_002, &task, "w").await;
}

pub async fn tasks_of_a_dead_worker_are_enqueued_before_their_leases_end(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let claimed = kit.create(0, kit.new_task()).await;
    let claimed = kit.claim(0, &claimed, "w").await;
    let event = kit.reclaim_event(&claimed);
    let claimed = kit.apply(5, &claimed, event.clone()).await;
    assert_eq!((claimed.tries, claimed.losses), (0, 1));
    let repeated = kit.refused(6, &claimed, event).await;
    assert_eq!(repeated, Reason::Moved);

    let running = kit.create(0, kit.new_task()).await;
    let running = kit.run(0, &running, "w").await;
    let running = kit.apply(5, &running, kit.reclaim_event(&running)).await;
    assert_eq!((running.kind(), running.tries), (StateKind::Enqueued, 1));
}

pub async fn a_26_a_run_never_outlasts_its_run_timeout_and_is_reclaimed_a_grace_later(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        run_timeout: Some(secs(10)),
        ..Policy::default()
    })
    .await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(0, &task, "w").await;
    let heartbeat = |token| Event::Heartbeat { token };
    let task = kit.apply(6_000, &task, heartbeat(token(&task))).await;
    // The worker stops the run at the end of its run timeout, and then reports. Until the grace is over, no other
    // worker gets the task.
    let reclaimed_at = at(10_000).after(Policy::RUN_GRACE);
    assert_eq!(task.state.trigger_at(), Some(reclaimed_at));
    let lease = task.lease().expect("a lease");
    assert_eq!(lease.run_ends_at(), Some(at(10_000)));
    let late = kit.refused(10_000, &task, heartbeat(token(&task))).await;
    assert_eq!(late, Reason::Expired);
    let reclaimed = kit.trigger(reclaimed_at.millis(), &task).await;
    let error = reclaimed.error.expect("an error");
    assert_eq!(&*error, "ran past its run timeout");
}

pub async fn a_26_an_outcome_within_the_grace_after_the_run_timeout_counts(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        run_timeout: Some(Duration::from_millis(600)),
        ..Policy::default()
    })
    .await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(0, &task, "w").await;
    let early = kit.refused(1_599, &task, kit.trigger_event(&task)).await;
    assert_eq!(early, Reason::NotDue);
    let task = kit.finish(1_599, &task, success("ok")).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 1));
}

pub async fn f_013_the_time_of_change_never_moves_back(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(10_000, kit.new_task()).await;
    let task = kit.claim(11_000, &task, "w").await;
    // From here on, the clock is an hour behind.
    let task = kit.start(11_000 - 3_600_000, &task).await;
    assert_eq!(task.changed_at, at(11_000));
    assert_eq!(task.started_at, Some(at(11_000)));
    let task = kit.finish(12_000 - 3_600_000, &task, success("ok")).await;
    assert_eq!(task.changed_at, at(11_000));
    assert!(task.finished_at >= task.started_at);
    assert_eq!(task.created_at, at(10_000));
}

pub async fn the_history_of_a_hundred_failures_is_bounded(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(policy_with_retries(None)).await;
    let mut task = kit.create(0, kit.new_task()).await;
    for n in 0..100 {
        let ms = n * 10_000_000;
        task = kit.run(ms + 1, &task, "w").await;
        task = kit
            .finish(ms + 2, &task, retriable(&format!("failure {n}")))
            .await;
        task = kit.trigger(ms + 9_000_000, &task).await;
    }
    let history = task.history.as_ref().expect("a history");
    let kept = limits().history_len_max;
    assert_eq!(history.runs.len(), kept);
    assert_eq!(history.dropped as usize, 100 - kept);
    assert_eq!(&*history.runs[0].info, "failure 0");
    assert_eq!(&*history.runs[kept - 1].info, "failure 99");
    assert_eq!(task.tries, 100);
}
