//! Submits.

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{
    Backoff, Due, Family, Firing, NewTask, Overrides, Policy, Predecessor, Priority, ScheduleName,
    State, StateKind, TaskEnd, TaskOptions, TriggerOn, Unique, Weight, WorkerId,
};
use tokio::task::JoinSet;

use super::kit::{StoreKit, at, enqueued_until, fatal, job, job_name, secs};
use crate::{Create, Rng as _, Store, StoreError};

pub async fn f_001_a_task_without_a_time_is_created_as_enqueued(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let request = kit.create_request(kit.new_task());
    let (token, write) = (request.token, request.write);
    let created = kit.store.create(at(5), vec![request]).await.remove(0);
    let task = created.expect("a new task").task;
    let expires_at = at(5).after(Policy::default().enqueue_timeout);
    assert_eq!(task.state, State::Enqueued { token, expires_at });
    assert_eq!((task.write, task.run_at), (write, at(5)));
    assert_eq!((task.created_at, task.changed_at), (at(5), at(5)));
    assert_eq!((task.tries, task.losses, task.started_at), (0, 0, None));
    assert_eq!(kit.get(&task).await, *task);
}

pub async fn f_009_a_task_with_a_future_time_waits_as_new(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.task_due(5_000)).await;
    let due_at = at(5_000);
    assert_eq!(task.state, State::New { due_at });
    assert_eq!((task.run_at, task.created_at), (at(5_000), at(0)));
}

pub async fn f_010_a_task_with_a_past_time_is_created_as_enqueued(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for due_ms in [-3_600_000, 0] {
        let task = kit.create(0, kit.task_due(due_ms)).await;
        assert!(enqueued_until(&task).is_some(), "{:?}", task.state);
        assert_eq!(task.run_at, at(due_ms), "the original time is kept");
    }
}

pub async fn a_due_task_of_a_paused_job_waits_as_new(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let paused = kit.store.pause_job(&job_name("mail"), true, at(1)).await;
    paused.expect("the job can be paused");
    let task = kit.create(5, kit.new_task()).await;
    assert_eq!(task.state, State::New { due_at: at(5) });
    let resumed = kit.store.pause_job(&job_name("mail"), false, at(6)).await;
    resumed.expect("the job can be resumed");
    let task = kit.create(7, kit.new_task()).await;
    assert_eq!(task.kind(), StateKind::Enqueued);
}

pub async fn a_due_task_that_may_not_be_enqueued_waits_as_new(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let request = Create {
        may_enqueue: false,
        ..kit.create_request(kit.new_task())
    };
    let created = kit.store.create(at(5), vec![request]).await.remove(0);
    let task = created.expect("a new task").task;
    assert_eq!(task.state, State::New { due_at: at(5) });
}

pub async fn a_due_task_can_be_created_as_claimed_by_a_reserved_worker(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let reserved = WorkerId::new("reserved", 7).expect("a worker");
    let request = |task| Create {
        claim_for: Some(reserved.clone()),
        ..kit.create_request(task)
    };
    let requests = vec![request(kit.new_task()), request(kit.task_due(9_000))];
    let mut created = kit.store.create(at(5), requests).await;
    let later = created.remove(1).expect("a new task").task;
    assert_eq!(
        later.kind(),
        StateKind::New,
        "a task that is not due is not claimed"
    );
    let task = *created.remove(0).expect("a new task").task;
    assert_eq!(task.kind(), StateKind::Claimed);
    let lease = task.lease().expect("a lease").clone();
    assert_eq!((&lease.worker, lease.claimed_at), (&reserved, at(5)));
    assert_eq!(kit.get(&task).await, task);
    let owned = kit
        .store
        .owned(at(10), Some(&reserved))
        .await
        .expect("an answer");
    assert_eq!(owned.len(), 1);
    assert!(
        kit.store
            .ready(&task.job, 10)
            .await
            .expect("an answer")
            .is_empty()
    );
    // If it is not started, the watchdog finds it like any other lost claim.
    let page = kit.due_by(lease.expires_at.millis(), 10, &[]).await;
    assert_eq!(page.tasks.len(), 2);
}

pub async fn f_002_the_same_submit_twice_is_one_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = NewTask {
        id_is_given: true,
        ..kit.new_task()
    };
    let first = kit.create(0, new.clone()).await;
    let again = kit.try_create(900, new).await.expect("the same submit");
    assert!(again.existed);
    assert_eq!(*again.task, first, "the first one stays as it was");
    assert_eq!(kit.get(&first).await, first);
    assert_eq!(kit.ready("mail").await, [first.id]);
}

pub async fn f_002_one_id_with_other_content_is_refused_and_changes_nothing(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = kit.new_task();
    let first = kit.create(0, new.clone()).await;
    let changed = |change: fn(&mut NewTask)| {
        let mut new = new.clone();
        change(&mut new);
        new
    };
    for other in [
        changed(|new| new.payload = Bytes::from_static(b"other")),
        changed(|new| new.priority = Priority::new(7).expect("a priority")),
        changed(|new| new.weight = Weight::new(2).expect("a weight")),
        changed(|new| new.due = Due::At(at(77_000))),
        changed(|new| {
            new.options = Some(Box::new(TaskOptions {
                name: Some("other".into()),
                ..TaskOptions::default()
            }));
        }),
    ] {
        let answer = kit.try_create(9, other.clone()).await;
        let refused = matches!(&answer, Err(StoreError::Exists(id)) if *id == first.id);
        assert!(refused, "{other:?} got {answer:?}");
        assert_eq!(kit.get(&first).await, first);
    }
}

pub async fn f_018_the_id_of_a_finished_task_never_runs_again(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = kit.new_task();
    let task = kit.create(0, new.clone()).await;
    let task = kit.run(1, &task, "w").await;
    let task = kit.finish(2, &task, fatal("no use")).await;
    let again = kit.try_create(3, new).await.expect("the same submit");
    assert!(again.existed);
    assert_eq!(*again.task, task);
    assert!(kit.ready("mail").await.is_empty());
}

fn keyed(key: &str) -> TaskOptions {
    TaskOptions {
        key: Some(key.into()),
        ..TaskOptions::default()
    }
}

pub async fn one_key_within_a_job_is_one_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let first = kit.create(0, kit.task_with(keyed("k"))).await;

    let same = kit.try_create(1, kit.task_with(keyed("k"))).await;
    let same = same.expect("the same submit under another id");
    assert!(same.existed);
    assert_eq!(*same.task, first);

    let other = NewTask {
        payload: Bytes::from_static(b"other"),
        ..kit.task_with(keyed("k"))
    };
    let id = other.id;
    let answer = kit.try_create(2, other).await;
    let refused = matches!(&answer, Err(StoreError::Exists(id)) if *id == first.id);
    assert!(refused, "{answer:?}");
    assert_eq!(kit.find(&first.job, &id).await, None);

    let elsewhere = NewTask {
        job: job_name("post"),
        ..kit.task_with(keyed("k"))
    };
    kit.create(3, elsewhere).await;
    kit.create(3, kit.task_with(keyed("K"))).await;
}

pub async fn a_key_is_free_again_when_its_task_is_pruned(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let retention = Some(secs(1));
    kit.set_policy(Policy {
        retention,
        ..Policy::default()
    })
    .await;
    let first = kit.create(0, kit.task_with(keyed("k"))).await;
    let first = kit.run(1, &first, "w").await;
    kit.finish(2, &first, fatal("no use")).await;
    let still = kit.try_create(500, kit.task_with(keyed("k"))).await;
    assert!(still.expect("the finished task").existed);
    assert_eq!(kit.prune(10_000, 10).await, 1);
    kit.create(10_001, kit.task_with(keyed("k"))).await;
}

pub async fn two_concurrent_submits_of_one_id_create_one_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for round in 0..20 {
        let new = kit.new_task();
        let mut submits = JoinSet::new();
        for _ in 0..4 {
            let (store, request) = (kit.store.clone(), kit.create_request(new.clone()));
            submits.spawn(async move { store.create(at(round), vec![request]).await.remove(0) });
        }
        let created = submits.join_all().await.into_iter();
        let created: Vec<_> = created.map(|answer| answer.expect("a task")).collect();
        let new_ones = created.iter().filter(|created| !created.existed);
        assert_eq!(new_ones.count(), 1, "one of the submits creates the task");
        let stored = kit.find(&new.job, &new.id).await.expect("the task");
        assert!(created.iter().all(|created| *created.task == stored));
    }
}

pub async fn f_001_a_submit_to_an_unknown_job_is_refused(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = kit.new_task_of("unknown");
    let answer = kit.try_create(0, new.clone()).await;
    let refused = matches!(answer, Err(StoreError::NotFound { what: "job", .. }));
    assert!(refused, "{answer:?}");
    assert_eq!(kit.find(&new.job, &new.id).await, None);
}

pub async fn one_bad_submit_of_a_batch_does_not_affect_the_others(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let taken = kit.create(0, kit.new_task()).await;
    for bad_at in [0, 20, 49] {
        let mut batch: Vec<NewTask> = (0..49).map(|_| kit.new_task()).collect();
        let (bad, unknown) = if bad_at == 20 {
            (kit.new_task_of("unknown"), true)
        } else {
            let payload = Bytes::from_static(b"other");
            let id = taken.id;
            let new = kit.new_task();
            (NewTask { id, payload, ..new }, false)
        };
        batch.insert(bad_at, bad);
        let requests = batch
            .iter()
            .map(|new| kit.create_request(new.clone()))
            .collect();
        let results = kit.store.create(at(1), requests).await;
        assert_eq!(results.len(), 50);
        for (n, (new, result)) in batch.iter().zip(results).enumerate() {
            match result {
                Ok(created) => assert_eq!(created.task.id, new.id, "results keep the order"),
                Err(StoreError::NotFound { .. }) => assert!(n == bad_at && unknown),
                Err(StoreError::Exists(id)) => assert!(n == bad_at && id == taken.id),
                Err(other) => panic!("item {n}: {other}"),
            }
            if n != bad_at {
                let stored = kit.find(&new.job, &new.id).await;
                assert!(stored.is_some(), "item {n} of 50 is durable");
            }
        }
    }
    assert_eq!(kit.get(&taken).await, taken);
}

pub async fn one_submit_twice_in_a_batch_is_one_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = kit.new_task();
    let requests = vec![kit.create_request(new.clone()), kit.create_request(new)];
    let results = kit.store.create(at(0), requests).await;
    let [first, second] = &results[..] else {
        panic!("one result per item");
    };
    let (first, second) = (first.as_ref().expect("a task"), second.as_ref());
    let second = second.expect("the same task");
    assert!(!first.existed && second.existed);
    assert_eq!(first.task, second.task);
}

pub async fn f_005_payloads_are_kept_byte_for_byte(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let random = |len: usize| -> Bytes {
        let words = (0..len.div_ceil(8)).flat_map(|_| kit.rng.next_u64().to_le_bytes());
        words.take(len).collect()
    };
    let text = Bytes::from_static("{\"Größe\": \"十\"}".as_bytes());
    for payload in [
        Bytes::new(),
        Bytes::from_static(&[0]),
        text,
        random(64 * 1024),
        random(256 * 1024),
    ] {
        let new = NewTask {
            payload: payload.clone(),
            ..kit.new_task()
        };
        let task = kit.create(0, new).await;
        assert!(kit.get(&task).await.payload == payload);
        // Every call that returns tasks returns the whole payload, from claim to end.
        let task = kit.run(1, &task, "w").await;
        assert!(task.payload == payload);
        let result = Some(payload.clone());
        let task = kit
            .finish(2, &task, dueline_domain::Outcome::Success { result })
            .await;
        assert!(kit.get(&task).await.result.as_ref() == Some(&payload));
    }
}

pub async fn f_006_rare_fields_are_kept(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let backoff = Backoff::new(secs(3), 1.5, 0.25, secs(99)).expect("a backoff");
    let full = TaskOptions {
        name: Some("a name, ünïcode too".into()),
        details: Some(r#"{"a":1,"b":[null,"x"]}"#.into()),
        tags: vec!["one".into(), "two words".into(), "drei'\"\\".into()],
        key: Some("a key".into()),
        unique: Some(Box::new(Unique {
            period: Some(secs(5)),
            replaced: 3,
            ..Unique::default()
        })),
        created_by: Some("client@example.org".into()),
        content_type: Some("application/json; charset=utf-8".into()),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        overrides: Some(Overrides {
            retries_max: Some(0),
            backoff: Some(backoff),
            heartbeat_timeout: Some(secs(41)),
            heartbeat_increment: Some(secs(0)),
            run_timeout: Some(secs(43)),
        }),
        fairness_key: Some("acme".into()),
        takes_turns: false,
        original_run_at: None,
        firing: Some(Firing {
            schedule: ScheduleName::parse("nightly").expect("a name"),
            nominal_at: at(7),
        }),
        family: Some(Box::new(Family {
            after: vec![Predecessor {
                task: kit.new_task_of("mail").address(),
                end: Some(TaskEnd::Failed),
            }],
            trigger_on: TriggerOn::Failure,
            has_followers: true,
            ..Family::default()
        })),
    };
    let new = NewTask {
        priority: Priority::new(-1000).expect("a priority"),
        weight: Weight::new(10_000).expect("a weight"),
        ..kit.task_with(full.clone())
    };
    let task = kit.create(0, new).await;
    assert_eq!(task.options.as_deref(), Some(&full));
    assert_eq!(task.message().and_then(|m| m.trace), full.trace);
    // The overrides hold: heartbeats add nothing and no second run is allowed.
    let task = kit.run(0, &task, "w").await;
    assert_eq!(task.state.trigger_at(), Some(at(41_000)));
    let task = kit.finish(1, &task, super::kit::retriable("once")).await;
    assert_eq!(task.kind(), StateKind::Failed);
    assert_eq!(task.options.as_deref(), Some(&full));

    let plain = kit.create(1, kit.new_task()).await;
    assert_eq!(plain.options, None);
}
