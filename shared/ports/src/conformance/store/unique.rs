//! Unique tasks: the scope and the period of a key, and what becomes of a submit whose key is held.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_domain::{
    Due, Event, HeldUntil, NewTask, OnConflict, Priority, StateKind, Task, TaskId, TaskOptions,
    Unique, Weight,
};
use tokio::task::JoinSet;

use super::kit::{StoreKit, at, fatal, ids, job_name, secs, success, token};
use crate::{Create, Created, ListQuery, Rng as _, Store, StoreError};

const RETURN: OnConflict = OnConflict::Return;

fn unique(until: HeldUntil, on_conflict: OnConflict) -> Unique {
    Unique {
        until,
        on_conflict,
        ..Unique::default()
    }
}

/// A submit with the key `k`.
fn submit(kit: &StoreKit, payload: &str, unique: Unique) -> NewTask {
    NewTask {
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        ..kit.task_with(TaskOptions {
            key: Some("k".into()),
            unique: Some(Box::new(unique)),
            ..TaskOptions::default()
        })
    }
}

/// The tasks that a list by the key `k` shows.
async fn holders(kit: &StoreKit) -> Vec<TaskId> {
    let query = ListQuery {
        key: Some("k".into()),
        ..ListQuery::of(job_name("mail"))
    };
    ids(&kit.list_by(&query, 10).await)
}

async fn existing(kit: &StoreKit, ms: i64, new: NewTask) -> Task {
    let created = kit.try_create(ms, new).await.expect("the first task");
    assert!(created.existed && !created.replaced);
    *created.task
}

async fn held(kit: &StoreKit, ms: i64, new: NewTask) -> (TaskId, StateKind) {
    let id = new.id;
    match kit.try_create(ms, new).await {
        Err(StoreError::KeyHeld { holder, state }) => {
            assert_eq!(kit.find(&job_name("mail"), &id).await, None);
            (holder, state)
        }
        other => panic!("the key is held, but: {other:?}"),
    }
}

pub async fn g_06_a_key_is_held_until_its_task_starts(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = |payload| submit(&kit, payload, unique(HeldUntil::Started, RETURN));
    let first = kit.create(0, new("a")).await;
    assert_eq!(existing(&kit, 1, new("b")).await, first);
    let claimed = kit.claim(2, &first, "w").await;
    let second = kit.create(3, new("c")).await;
    assert_ne!(second.id, first.id);
    assert_eq!(kit.get(&first).await, claimed, "the first one goes on");
    // A key that was taken over does not come back to the task that had it.
    let (token, next) = (token(&claimed), kit.rng.token());
    kit.apply(4, &claimed, Event::Abandon { token, next }).await;
    assert_eq!(existing(&kit, 5, new("d")).await, second);
    assert_eq!(holders(&kit).await, [second.id]);
    // No later task has taken the key over, so the task holds it again when its claim is abandoned.
    let third = kit.claim(6, &second, "w").await;
    let (token, next) = (third.state.token().expect("a token"), kit.rng.token());
    kit.apply(7, &third, Event::Abandon { token, next }).await;
    assert_eq!(existing(&kit, 8, new("e")).await.id, second.id);
}

pub async fn g_06_a_key_is_held_until_its_task_ends(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = |payload| submit(&kit, payload, unique(HeldUntil::Ended, RETURN));
    let first = kit.create(0, new("a")).await;
    let running = kit.run(1, &first, "w").await;
    assert_eq!(existing(&kit, 2, new("b")).await, running);
    let done = kit.finish(3, &running, success("done")).await;
    // A submit without a scope meets the scope of the task.
    let plain = NewTask {
        options: Some(Box::new(TaskOptions {
            key: Some("k".into()),
            ..TaskOptions::default()
        })),
        ..kit.new_task()
    };
    let second = kit.create(4, plain).await;
    assert_eq!(kit.get(&first).await, done);
    assert_eq!(holders(&kit).await, [second.id]);
    // It holds the key as long as it is kept.
    let running = kit.run(5, &second, "w").await;
    let ended = kit.finish(6, &running, fatal("no use")).await;
    assert_eq!(existing(&kit, 7, new("c")).await, ended);
    // The first task is still found by its id, for a client that repeats its submit.
    let again = NewTask {
        id: first.id,
        ..new("a")
    };
    assert_eq!(existing(&kit, 8, again).await, done);
}

pub async fn g_06_a_period_ends_the_hold_on_a_key(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = || {
        let unique = Unique {
            period: Some(secs(60)),
            ..unique(HeldUntil::Deleted, RETURN)
        };
        submit(&kit, "a", unique)
    };
    let first = kit.create(0, new()).await;
    let running = kit.run(1, &first, "w").await;
    let done = kit.finish(2, &running, success("done")).await;
    assert_eq!(existing(&kit, 59_999, new()).await, done);
    let second = kit.create(60_000, new()).await;
    assert_eq!(existing(&kit, 119_999, new()).await, second);
    kit.create(120_000, new()).await;
}

pub async fn g_06_a_submit_is_refused_with_the_holder_of_its_key(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = || submit(&kit, "a", unique(HeldUntil::Ended, OnConflict::Reject));
    let first = kit.create(0, new()).await;
    let refused = held(&kit, 1, new()).await;
    assert_eq!(refused, (first.id, StateKind::Enqueued));
    let running = kit.run(2, &first, "w").await;
    assert_eq!(
        held(&kit, 3, new()).await,
        (first.id, StateKind::Processing)
    );
    // The same submit again is no conflict.
    let again = NewTask {
        id: first.id,
        ..new()
    };
    assert_eq!(existing(&kit, 4, again).await, running);
    kit.finish(5, &running, success("done")).await;
    kit.create(6, new()).await;
}

pub async fn g_06_a_task_that_waits_is_replaced_by_a_later_submit(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = |payload: &str, due_s: u64| {
        let unique = Unique {
            max_delay: Some(secs(10)),
            ..unique(HeldUntil::Started, OnConflict::Replace)
        };
        let mut new = submit(&kit, payload, unique);
        new.due = Due::After(secs(due_s));
        new
    };
    let first = kit.create(0, new("a", 5)).await;
    let large = "b".repeat(40_000);
    let mut other = new(&large, 5);
    other.priority = Priority::new(7).expect("a priority");
    other.weight = Weight::new(3).expect("a weight");
    let options = other.options.as_mut().expect("options");
    options.tags = vec!["later".into()];
    let created = kit.try_create(4_000, other.clone()).await.expect("a task");
    assert!(created.existed && created.replaced);
    let task = *created.task;
    assert_eq!(kit.get(&first).await, task, "what was answered is stored");
    assert_eq!((task.id, task.run_at), (first.id, at(9_000)));
    assert_eq!(task.payload, large.as_bytes());
    assert_eq!((task.priority, task.weight), (other.priority, other.weight));
    assert_eq!(kit.find(&task.job, &other.id).await, None, "no second task");
    let stored = task.options.as_deref().expect("options");
    assert_eq!(stored.tags, ["later".into()]);
    assert_eq!(stored.unique.as_ref().expect("unique").replaced, 1);
    assert!(kit.due(8_999).await.tasks.is_empty(), "not at its old time");
    // However often it is replaced, it is not later than the maximal delay.
    let created = kit.try_create(8_000, new("c", 5)).await.expect("a task");
    assert_eq!(created.task.run_at, at(10_000));
    assert_eq!(kit.get(&first).await.payload, "c");
    assert_eq!(ids_due(&kit, 10_000).await, [first.id]);
    // A submit that is due enqueues it; the message of an enqueued one becomes stale.
    let now = kit.try_create(8_500, new("d", 0)).await.expect("a task");
    assert_eq!(now.task.kind(), StateKind::Enqueued);
    let again = kit.try_create(8_600, new("e", 0)).await.expect("a task");
    assert_ne!(token(&again.task), token(&now.task));
    assert_eq!(kit.ready("mail").await, [first.id]);
    let stale = kit.claim_event(&now.task, "w", true);
    kit.refused(8_700, &first, stale).await;
    let running = kit.run(8_800, &again.task, "w").await;
    assert_eq!(running.payload, "e");
    // It has started: the next submit is a task of its own.
    let next = kit.create(9_000, new("f", 5)).await;
    assert_ne!(next.id, first.id);
    assert_eq!(kit.get(&first).await, running);
}

async fn ids_due(kit: &StoreKit, ms: i64) -> Vec<TaskId> {
    let page = kit.due(ms).await;
    page.tasks.iter().map(|task| task.id).collect()
}

pub async fn g_06_a_task_whose_run_has_begun_is_not_replaced(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = || submit(&kit, "a", unique(HeldUntil::Ended, OnConflict::Replace));
    let first = kit.create(0, new()).await;
    let claimed = kit.claim(1, &first, "w").await;
    assert_eq!(held(&kit, 2, new()).await, (first.id, StateKind::Claimed));
    let running = kit.start(3, &claimed).await;
    assert_eq!(held(&kit, 4, new()).await.1, StateKind::Processing);
    let retry = kit.finish(5, &running, super::kit::retriable("once")).await;
    let kind = retry.kind();
    assert_eq!(held(&kit, 6, new()).await, (first.id, kind));
    assert_eq!(kit.get(&first).await, retry);
}

/// Submits at the same time, each under an id of its own.
async fn race(kit: &StoreKit, ms: i64, submits: Vec<NewTask>) -> Vec<Result<Created, StoreError>> {
    let mut racing = JoinSet::new();
    for task in submits {
        let (store, token, write) = (kit.store.clone(), kit.rng.token(), kit.rng.write_id());
        let create = Create {
            task,
            token,
            write,
            may_enqueue: true,
            claim_for: None,
        };
        racing.spawn(async move { store.create(at(ms), vec![create]).await.remove(0) });
    }
    racing.join_all().await
}

pub async fn g_06_of_racing_submits_of_one_key_one_creates_the_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let policies = [RETURN, OnConflict::Replace, OnConflict::Reject];
    for round in 0..12_u32 {
        let policy = policies[round as usize % 3];
        let ms = i64::from(round) * 100;
        let new = |payload: &str| submit(&kit, payload, unique(HeldUntil::Ended, policy));
        let submits = (0..6).map(|n| new(&format!("{round}-{n}"))).collect();
        // The key is free, or in later rounds that of a task that has ended.
        let answers = race(&kit, ms, submits).await;
        let created = answers.iter().flatten().filter(|created| !created.existed);
        assert_eq!(created.count(), 1, "{policy:?}: {answers:?}");
        let [holder] = holders(&kit).await[..] else {
            panic!("one task holds the key");
        };
        for answer in &answers {
            match answer {
                Ok(created) => assert_eq!(created.task.id, holder),
                Err(StoreError::KeyHeld { holder: named, .. }) => assert_eq!(*named, holder),
                // A store that is asked too much at once may say so; nothing was stored then.
                Err(StoreError::Throttled) => {}
                Err(other) => panic!("{policy:?}: {other}"),
            }
        }
        let all = kit.list_by(&ListQuery::of(job_name("mail")), 100).await;
        assert_eq!(all.len(), round as usize + 1, "one task a round");
        let open = all.iter().filter(|task| !task.kind().is_final());
        let open: Vec<&Task> = open.collect();
        assert_eq!(open.len(), 1);
        if policy == OnConflict::Replace {
            let replaced = answers.iter().flatten().filter(|created| created.replaced);
            let count = open[0].unique().expect("unique").replaced as usize;
            assert_eq!(replaced.count(), count, "each replacement is stored once");
        }
        let running = kit.run(ms + 50, open[0], "w").await;
        kit.finish(ms + 60, &running, success("done")).await;
    }
}

pub async fn g_06_a_submit_that_races_with_a_claim_is_never_lost(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for round in 0..12_i64 {
        let ms = round * 1_000;
        let scope = unique(HeldUntil::Started, OnConflict::Replace);
        let first = kit.create(ms, submit(&kit, "old", scope.clone())).await;
        let claim = kit.command(&first, kit.claim_event(&first, "w", true));
        let store = kit.store.clone();
        let mut claiming = JoinSet::new();
        claiming.spawn(async move { store.apply(at(ms + 1), vec![claim]).await.remove(0) });
        let created = race(&kit, ms + 1, vec![submit(&kit, "new", scope)])
            .await
            .remove(0)
            .expect("a task");
        let claimed = claiming.join_all().await.remove(0).is_ok();
        let stored = kit.get(&first).await;
        if created.replaced {
            assert_eq!(stored.payload, "new");
            assert!(!claimed, "the claim was that of the old content");
        } else {
            assert_ne!(created.task.id, first.id);
            assert_eq!(stored.payload, "old");
        }
        // All of them end, so that the next round begins anew.
        for task in [first, *created.task] {
            let task = kit.get(&task).await;
            let task = match task.kind() {
                StateKind::Enqueued => kit.run(ms + 2, &task, "w").await,
                _ => task,
            };
            if task.kind().is_owned() {
                kit.finish(ms + 3, &task, success("done")).await;
            }
        }
    }
}

pub async fn g_06_what_makes_a_task_unique_is_kept(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for until in HeldUntil::ALL {
        for on_conflict in OnConflict::ALL {
            let unique = Unique {
                until,
                period: Some(Duration::from_millis(1_234)),
                on_conflict,
                max_delay: Some(Duration::from_millis(5_678)),
                replaced: 0,
            };
            let mut new = submit(&kit, "a", unique.clone());
            let key = format!("{}-{}", until.name(), on_conflict.name());
            new.options.as_mut().expect("options").key = Some(key.into());
            let task = kit.create(0, new).await;
            assert_eq!(task.unique(), Some(&unique));
        }
    }
}
