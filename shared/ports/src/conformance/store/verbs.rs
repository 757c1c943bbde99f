//! Events of users, operators and owners besides claims and runs.

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{
    Claim, Due, EdgeKind, Event, Modification, NewTask, Outcome, Priority, Reason, Release, RunEnd,
    RunningCancel, State, StateKind, Task, TaskEnd, TaskOptions, Weight,
};

use super::kit::{StoreKit, at, fatal, retriable, secs, success, token, worker};
use crate::{Rng as _, Store};

fn cancel(running: RunningCancel) -> Event {
    let reason = Some("not wanted".into());
    Event::Cancel { running, reason }
}

fn discard() -> Event {
    let reason = "gate".into();
    Event::Drop { reason }
}

/// One task in each pending state.
async fn pending(kit: &StoreKit) -> Vec<Task> {
    let new = kit.create(0, kit.task_due(5_000)).await;
    let enqueued = kit.create(0, kit.new_task()).await;
    let failed_once = kit.create(0, kit.new_task()).await;
    let failed_once = kit.run(0, &failed_once, "w").await;
    let failed_once = kit.finish(1, &failed_once, retriable("once")).await;
    vec![new, enqueued, failed_once]
}

pub async fn a_pending_task_can_be_cancelled(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for task in pending(&kit).await {
        let task = kit.apply(9, &task, cancel(RunningCancel::Refuse)).await;
        assert_eq!(task.kind(), StateKind::Cancelled);
        assert_eq!(task.finished_at, Some(at(9)));
        assert_eq!(task.error.as_deref(), Some("not wanted"));
        let again = kit.refused(10, &task, cancel(RunningCancel::Refuse)).await;
        assert_eq!(again, Reason::Finished);
    }
    assert!(kit.ready("mail").await.is_empty());
    assert!(kit.due(9_000_000).await.tasks.is_empty());
}

pub async fn a_running_task_is_cancelled_by_a_request_to_its_worker(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(0, &task, "w").await;
    let refused = kit.refused(1, &task, cancel(RunningCancel::Refuse)).await;
    assert_eq!(refused, Reason::Running);
    let unrequested = kit.finish_event(&task, Outcome::Cancelled);
    let unrequested = kit.refused(2, &task, unrequested).await;
    assert_eq!(unrequested, Reason::CancelNotRequested);
    let task = kit.apply(3, &task, cancel(RunningCancel::Request)).await;
    assert!(task.cancel_requested);
    assert_eq!(task.kind(), StateKind::Processing);
    let current = token(&task);
    let task = kit
        .apply(4, &task, Event::Heartbeat { token: current })
        .await;
    assert!(task.cancel_requested, "a heartbeat keeps the request");
    let task = kit.finish(5, &task, Outcome::Cancelled).await;
    assert_eq!(task.kind(), StateKind::Cancelled);
    assert!(!task.cancel_requested);
    let runs = &task.history.as_ref().expect("a history").runs;
    assert_eq!(runs[0].end, RunEnd::Cancelled);
}

pub async fn a_pending_task_can_be_modified(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for task in pending(&kit).await {
        let change = Modification {
            run_at: Some(at(70_000)),
            priority: Some(Priority::new(5).expect("a priority")),
            weight: Some(Weight::new(6).expect("a weight")),
            payload: Some(Bytes::from_static(b"changed")),
        };
        let next = kit.rng.token();
        let event = Event::Modify {
            change,
            token: next,
        };
        let task = kit.apply(9, &task, event).await;
        let due_at = at(70_000);
        assert_eq!(task.state, State::New { due_at });
        assert_eq!(
            (task.run_at, task.payload.as_ref()),
            (due_at, &b"changed"[..])
        );
        let (priority, weight) = (task.priority.get(), task.weight.get());
        assert_eq!((priority, weight), (5, 6));
    }
    assert!(kit.ready("mail").await.is_empty());
    assert!(kit.due(69_999).await.tasks.is_empty());
    assert_eq!(kit.due(70_000).await.tasks.len(), 3);
}

fn abandon(kit: &StoreKit, task: &Task) -> Event {
    Event::Abandon {
        token: token(task),
        next: kit.rng.token(),
    }
}

pub async fn f_011_a_reschedule_keeps_the_original_run_time(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let reschedule = |ms| Event::Modify {
        change: Modification {
            run_at: Some(at(ms)),
            ..Modification::default()
        },
        token: kit.rng.token(),
    };
    // Details that fill a kibibyte, which DynamoDB stores apart.
    let details = format!(r#"{{"a":"{}"}}"#, "x".repeat(1_500));
    let options = TaskOptions {
        key: Some("a key".into()),
        details: Some(details.into()),
        ..TaskOptions::default()
    };
    for options in [None, Some(Box::new(options))] {
        let due = Due::At(at(50_000));
        let new = kit.new_task();
        let task = NewTask {
            due,
            options,
            ..new
        };
        let task = kit.create(0, task).await;
        assert_eq!(task.original_run_at(), at(50_000));
        let created = task.options.clone().unwrap_or_default();
        let task = kit.apply(1, &task, reschedule(60_000)).await;
        let task = kit.apply(2, &task, reschedule(70_000)).await;
        let task = kit.trigger(70_000, &task).await;
        let task = kit.run(70_001, &task, "w").await;
        let task = kit.finish(70_002, &task, retriable("once")).await;
        let times = (task.run_at, task.original_run_at());
        assert_eq!(times, (at(70_000), at(50_000)));
        let kept = TaskOptions {
            original_run_at: None,
            ..*task.options.clone().expect("options")
        };
        assert_eq!(kept, *created);
        let task = kit.apply(70_003, &task, reschedule(80_000)).await;
        let times = (task.run_at, task.original_run_at());
        assert_eq!(times, (at(80_000), at(50_000)));
    }
}

pub async fn run_numbers_never_repeat_after_an_abandon_or_a_redrive(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut task = kit.create(0, kit.new_task()).await;
    let mut seen = Vec::new();
    for round in 0..4 {
        let ms = round * 1_000;
        task = kit.run(ms, &task, "w").await;
        seen.push(task.attempt());
        assert_eq!(task.latest_attempt(), Some(task.attempt()));
        task = kit.apply(ms + 1, &task, abandon(&kit, &task)).await;
        task = kit.run(ms + 2, &task, "v").await;
        seen.push(task.attempt());
        task = kit.finish(ms + 3, &task, fatal("broken")).await;
        assert_eq!(task.latest_attempt(), seen.last().copied());
        assert_eq!(task.tries, 1, "the count of tries begins anew");
        task = kit.apply(ms + 4, &task, Event::Redrive).await;
        task = kit.trigger(ms + 5, &task).await;
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    let history = task.history.as_ref().expect("a history");
    let stored: Vec<_> = history.runs.iter().map(|run| run.attempt).collect();
    assert_eq!(stored, seen);
    let task = kit.run(9_000, &task, "w").await;
    let task = kit.finish(9_001, &task, success("ok")).await;
    assert_eq!(task.latest_attempt(), Some(8));
}

pub async fn a_new_priority_replaces_the_message_of_an_enqueued_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let first = kit.create(0, kit.new_task()).await;
    let second = kit.create(0, kit.new_task()).await;
    let change = Modification {
        priority: Some(Priority::new(1).expect("a priority")),
        ..Modification::default()
    };
    let next = kit.rng.token();
    let event = Event::Modify {
        change,
        token: next,
    };
    let stale = kit.claim_event(&second, "w", false);
    let second = kit.apply(1, &second, event).await;
    assert_eq!(token(&second), next);
    assert_eq!(kit.ready("mail").await, [second.id, first.id]);
    assert_eq!(kit.refused(2, &second, stale).await, Reason::Lost);
}

pub async fn f_018_an_owned_task_cannot_be_modified(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.claim(0, &task, "w").await;
    let event = Event::Modify {
        change: Modification {
            payload: Some(Bytes::from_static(b"changed")),
            ..Modification::default()
        },
        token: kit.rng.token(),
    };
    assert_eq!(kit.refused(1, &task, event).await, Reason::Running);
}

pub async fn a_failed_task_can_be_redriven(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let early = kit.refused(0, &task, Event::Redrive).await;
    assert_eq!(early, Reason::NotFinished);
    let task = kit.run(1, &task, "w").await;
    let task = kit.finish(2, &task, fatal("broken")).await;
    let task = kit.apply(3, &task, Event::Redrive).await;
    assert_eq!(task.state, State::New { due_at: at(3) });
    assert_eq!((task.tries, task.losses), (0, 0));
    assert_eq!((&task.error, &task.result), (&None, &None));
    assert_eq!((task.started_at, task.finished_at), (None, None));
    assert!(task.history.is_some(), "past runs are kept");
    let task = kit.trigger(3, &task).await;
    let task = kit.run(4, &task, "w").await;
    let task = kit.finish(5, &task, super::kit::success("fixed")).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 1));
    let late = kit.refused(6, &task, Event::Redrive).await;
    assert_eq!(late, Reason::Finished);
}

pub async fn a_gate_can_drop_a_task_without_an_owner(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for task in pending(&kit).await {
        let task = kit.apply(9, &task, discard()).await;
        assert_eq!(task.kind(), StateKind::Dropped);
        assert_eq!(task.error.as_deref(), Some("gate"));
    }
    let owned = kit.create(10, kit.new_task()).await;
    let owned = kit.claim(10, &owned, "w").await;
    assert_eq!(kit.refused(11, &owned, discard()).await, Reason::Running);
}

pub async fn f_077_an_owner_can_trash_its_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let trash = |token| Event::Trash {
        token,
        reason: "unreadable".into(),
    };
    let unowned = kit.create(0, kit.new_task()).await;
    let refused = kit.refused(0, &unowned, trash(token(&unowned))).await;
    assert_eq!(refused, Reason::NotClaimed);
    let claimed = kit.claim(1, &unowned, "w").await;
    let claimed = kit.apply(2, &claimed, trash(token(&claimed))).await;
    let running = kit.create(0, kit.new_task()).await;
    let running = kit.run(1, &running, "w").await;
    let running = kit.apply(2, &running, trash(token(&running))).await;
    for task in [claimed, running] {
        assert_eq!(task.kind(), StateKind::Trashed);
        assert_eq!(task.error.as_deref(), Some("unreadable"));
        assert_eq!(task.payload.as_ref(), b"payload");
        assert_eq!(task.last_owner, Some(worker("w")));
        assert_eq!(task.finished_at, Some(at(2)));
        let claim = Event::Claim(Claim {
            token: kit.rng.token(),
            worker: worker("v"),
            start: false,
        });
        assert_eq!(kit.refused(3, &task, claim).await, Reason::Finished);
        let redriven = kit.apply(4, &task, Event::Redrive).await;
        assert_eq!(redriven.last_owner, None);
    }
}

pub async fn f_075_an_owner_can_abandon_its_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let refused = kit.refused(0, &task, abandon(&kit, &task)).await;
    assert_eq!(refused, Reason::NotClaimed);
    let task = kit.claim(1, &task, "w").await;
    let task = kit.apply(2, &task, abandon(&kit, &task)).await;
    let task = kit.run(3, &task, "v").await;
    let task = kit.apply(4, &task, abandon(&kit, &task)).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 0));
    let runs = &task.history.as_ref().expect("a history").runs;
    assert_eq!(runs[0].end, RunEnd::Abandoned);
    assert_eq!(kit.ready("mail").await, [task.id]);
}

pub async fn an_owner_can_set_the_end_of_its_lease(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let extend = |task: &Task, s| Event::Extend {
        token: token(task),
        by: secs(s),
    };
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.claim(0, &task, "w").await;
    let task = kit.apply(1_000, &task, extend(&task, 100)).await;
    assert_eq!(task.state.trigger_at(), Some(at(101_000)));
    let task = kit.apply(2_000, &task, extend(&task, 3)).await;
    assert_eq!(
        task.state.trigger_at(),
        Some(at(5_000)),
        "a lease can be shortened"
    );
    assert_eq!(kit.due(5_000).await.tasks.len(), 1);
    // Until the watchdog has reclaimed the task, its owner may renew the lapsed lease.
    let task = kit.apply(5_000, &task, extend(&task, 100)).await;
    assert_eq!(task.state.trigger_at(), Some(at(105_000)));
    assert!(kit.due(5_000).await.tasks.is_empty());
    let reclaimed = kit.apply(5_000, &task, kit.reclaim_event(&task)).await;
    assert_eq!(reclaimed.kind(), StateKind::Enqueued);
    let late = kit.refused(5_000, &task, extend(&task, 100)).await;
    assert_eq!(late, Reason::Lost);
}

pub async fn a_task_that_is_not_waiting_cannot_be_released(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for task in pending(&kit).await {
        let release = Event::Release(Release {
            kind: EdgeKind::Follower,
            from: task.address(),
            end: TaskEnd::Succeeded,
            token: Some(kit.rng.token()),
        });
        let refused = kit.refused(9, &task, release).await;
        assert_eq!(refused, Reason::NotWaiting);
    }
}
