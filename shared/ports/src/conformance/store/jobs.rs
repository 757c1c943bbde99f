//! Job definitions, their statistics, and the pruning of their tasks.

use std::sync::Arc;

use dueline_domain::{
    Backoff, FairShare, Handler, Job, Policy, Quota, RetryPolicy, Sink, StateKind, Task, TaskId,
    WriteId,
};
use tokio::task::JoinSet;

use super::kit::{StoreKit, at, fatal, ids, job, job_name, retriable, secs, success};
use crate::{
    JobStats, ListQuery, PlaceRequest, PutJob, QuotaSwap, QuotaWrite, Store, StoreError, TakePlaces,
};

/// A job with no setting at its default.
fn unusual() -> Job {
    let backoff =
        |s, multiplier| Backoff::new(secs(s), multiplier, 0.125, secs(s * 9)).expect("a backoff");
    Job {
        info: "räumt auf, 'nightly'".into(),
        handler: Handler {
            kind: "exec".into(),
            config: r#"{"command":["/bin/true","a b"]}"#.into(),
        },
        policy: Policy {
            retry: RetryPolicy {
                retries_max: None,
                standard: backoff(1, 1.5),
                quick: backoff(2, 2.5),
                slow: backoff(3, 3.5),
                rate_limited: backoff(4, 4.5),
                worker_lost: Some(backoff(5, 5.5)),
            },
            enqueue_timeout: secs(11),
            claim_timeout: secs(12),
            heartbeat_timeout: secs(13),
            heartbeat_increment: secs(14),
            run_timeout: Some(secs(15)),
            losses_max: 16,
            retention: Some(secs(17)),
            sink: Sink::parse("file:odd.ndjson").ok(),
        },
        quota: Quota {
            rate_per_s: Some(12.5),
            burst: Some(18),
            running_max: Some(19),
        },
        fair_share: Some(FairShare {
            running_max: Some(5),
        }),
        paused: true,
        created_by: "ops".into(),
        ..job("odd-job_1")
    }
}

pub async fn a_job_is_read_with_every_setting(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let put = kit.put(unusual()).await;
    assert_eq!(*put, unusual());
    let read = kit.store.job(&unusual().name).await.expect("an answer");
    assert_eq!(read.as_deref(), Some(&unusual()));
    let plain = kit.store.job(&job_name("mail")).await.expect("an answer");
    assert_eq!(plain.as_deref(), Some(&job("mail")));
    let missing = kit.store.job(&job_name("unknown")).await;
    assert_eq!(missing.expect("an answer"), None);
}

pub async fn jobs_are_listed_by_name(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for name in ["zebra", "Alpha", "alpha"] {
        kit.put(job(name)).await;
    }
    let jobs = kit.store.jobs().await.expect("the jobs");
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["Alpha", "alpha", "mail", "zebra"]);
}

pub async fn replacing_a_job_keeps_its_creator_and_creation_time(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let changed = Job {
        info: "changed".into(),
        created_by: "another client".into(),
        created_at: at(500),
        changed_at: at(500),
        policy: Policy {
            losses_max: 1,
            ..Policy::default()
        },
        ..job("mail")
    };
    let put = kit.put(changed.clone()).await;
    let expected = Job {
        created_by: "suite".into(),
        created_at: at(0),
        ..changed
    };
    assert_eq!(*put, expected);
    let read = kit.store.job(&job_name("mail")).await.expect("an answer");
    assert_eq!(read.as_deref(), Some(&expected));

    let if_absent = true;
    let job = unusual();
    let created = kit.store.put_job(PutJob { job, if_absent }).await;
    assert_eq!(*created.expect("a new job"), unusual());
    let job = Job {
        info: "never stored".into(),
        ..unusual()
    };
    let existing = kit.store.put_job(PutJob { job, if_absent }).await;
    assert_eq!(*existing.expect("the existing job"), unusual());
}

pub async fn a_changed_policy_applies_to_the_next_transition_of_each_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    kit.set_policy(Policy {
        claim_timeout: secs(77),
        ..Policy::default()
    })
    .await;
    let task = kit.claim(0, &task, "w").await;
    assert_eq!(task.state.trigger_at(), Some(at(77_000)));
}

pub async fn a_job_can_be_paused_and_resumed(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mail = job_name("mail");
    for (paused, ms) in [(true, 5), (true, 6), (false, 7)] {
        let changed = kit.store.pause_job(&mail, paused, at(ms)).await;
        let changed = changed.expect("the job");
        assert_eq!(changed.paused, paused);
        assert!(changed.changed_at <= at(ms) && changed.changed_at >= at(0));
        let expected = Job {
            paused,
            changed_at: changed.changed_at,
            ..job("mail")
        };
        assert_eq!(*changed, expected, "nothing else changes");
        let read = kit.store.job(&mail).await.expect("an answer");
        assert_eq!(read.as_deref(), Some(&expected));
    }
    let unknown = job_name("unknown");
    let answer = kit.store.pause_job(&unknown, true, at(8)).await;
    let refused = matches!(answer, Err(StoreError::NotFound { .. }));
    assert!(refused, "{answer:?}");
}

pub async fn f_015_a_job_with_unfinished_tasks_is_not_deleted(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mail = job_name("mail");
    let done = kit.succeeded(0).await;
    let waiting = kit.create(0, kit.task_due(9_000)).await;
    let running = kit.create(0, kit.new_task()).await;
    let running = kit.run(0, &running, "w").await;
    let answer = kit.store.delete_job(&mail).await;
    let refused = matches!(&answer, Err(StoreError::InUse { job, unfinished: 2 }) if *job == mail);
    assert!(refused, "{answer:?}");
    for task in [&done, &waiting, &running] {
        assert_eq!(kit.get(task).await, *task);
    }
    assert!(kit.store.job(&mail).await.expect("an answer").is_some());
}

pub async fn deleting_a_job_removes_its_finished_tasks(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let other = kit.create(0, kit.new_task_of("post")).await;
    let mail = job_name("mail");
    let done = kit.succeeded(0).await;
    kit.store.delete_job(&mail).await.expect("a delete");
    assert_eq!(kit.store.job(&mail).await.expect("an answer"), None);
    assert_eq!(kit.find(&mail, &done.id).await, None);
    assert_eq!(kit.get(&other).await, other);
    let answer = kit.store.delete_job(&mail).await;
    let refused = matches!(answer, Err(StoreError::NotFound { .. }));
    assert!(refused, "{answer:?}");
    let submit = kit.try_create(1, kit.new_task()).await;
    assert!(submit.is_err(), "a deleted job accepts no tasks");

    // A job of the same name is a new job, without tasks or statistics of the old one.
    kit.put(Job {
        created_at: at(2),
        ..job("mail")
    })
    .await;
    assert!(
        kit.list_by(&ListQuery::of(mail.clone()), 9)
            .await
            .is_empty()
    );
    let stats = kit.store.stats(&mail).await.expect("stats");
    assert_eq!(stats, JobStats::default());
}

pub async fn stats_count_by_state_and_name_the_oldest_due_time(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let mail = job_name("mail");
    let empty = kit.store.stats(&mail).await.expect("stats");
    assert_eq!(empty, JobStats::default());

    kit.create(0, kit.task_due(30_000)).await;
    kit.create(0, kit.task_due(20_000)).await;
    kit.create(0, kit.new_task()).await;
    kit.create(0, kit.new_task_of("post")).await;
    let running = kit.create(0, kit.new_task()).await;
    let running = kit.run(0, &running, "w").await;
    kit.succeeded(0).await;
    let stats = kit.store.stats(&mail).await.expect("stats");
    use StateKind::{Enqueued, New, Processing, Succeeded};
    let counts = |counts: &[(StateKind, u64)]| counts.iter().copied().collect();
    let expected = counts(&[(New, 2), (Enqueued, 1), (Processing, 1), (Succeeded, 1)]);
    assert_eq!(stats.by_state, expected);
    let oldest_due_at = Some(at(20_000));
    assert_eq!(
        stats.oldest_due_at, oldest_due_at,
        "owned tasks do not count"
    );

    kit.finish(1, &running, success("ok")).await;
    let stats = kit.store.stats(&mail).await.expect("stats");
    let expected = counts(&[(New, 2), (Enqueued, 1), (Succeeded, 2)]);
    assert_eq!(stats.by_state, expected);
}

async fn present(kit: &StoreKit, tasks: &[Task]) -> Vec<TaskId> {
    let mut present = Vec::new();
    for task in tasks {
        present.extend(kit.find(&task.job, &task.id).await.map(|task| task.id));
    }
    present
}

pub async fn f_110_only_finished_tasks_past_their_retention_are_pruned(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    kit.set_policy(Policy {
        retention: Some(secs(2)),
        ..Policy::default()
    })
    .await;
    let mut old = Vec::new();
    for n in 0..5 {
        old.push(kit.succeeded(n * 10).await);
    }
    let failed = kit.create(0, kit.new_task()).await;
    let failed = kit.run(0, &failed, "w").await;
    old.push(kit.finish(1, &failed, fatal("no")).await);
    let mut kept = vec![kit.succeeded(9_000).await];
    kept.push(kit.create(0, kit.new_task()).await);
    kept.push(kit.create(0, kit.task_due(99_000)).await);
    let running = kit.create(0, kit.new_task()).await;
    kept.push(kit.run(0, &running, "w").await);
    let no_retention = kit.create(0, kit.new_task_of("post")).await;
    let no_retention = kit.run(0, &no_retention, "w").await;
    kept.push(kit.finish(0, &no_retention, success("ok")).await);

    assert_eq!(kit.prune(1_999, 100).await, 0, "no retention has passed");
    assert_eq!(kit.prune(10_000, 4).await, old.len());
    assert!(present(&kit, &old).await.is_empty());
    assert_eq!(present(&kit, &kept).await.len(), kept.len());
    let stats = kit.store.stats(&job_name("mail")).await.expect("stats");
    assert_eq!(stats.by_state.values().sum::<u64>(), 4);
    assert_eq!(
        kit.list_by(&ListQuery::of(job_name("mail")), 9).await.len(),
        4
    );
    assert_eq!(kit.prune(10_000, 100).await, 0);
}

pub async fn f_126_a_level_of_a_quota_is_replaced_by_one_of_two_callers(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let swap = |seen: Option<i64>, level: i64| QuotaSwap {
        job: job_name("mail"),
        seen,
        level,
        write: WriteId::from_random(level.unsigned_abs()),
        now: at(0),
    };
    let ask = |swap: QuotaSwap| async { kit.store.swap_quota(swap).await.expect("an answer") };
    assert_eq!(ask(swap(Some(1), 2)).await, QuotaWrite::Differs(None));
    assert_eq!(ask(swap(None, 5)).await, QuotaWrite::Done);
    assert_eq!(ask(swap(None, 6)).await, QuotaWrite::Differs(Some(5)));
    assert_eq!(ask(swap(Some(4), 6)).await, QuotaWrite::Differs(Some(5)));
    let both = [swap(Some(5), -7), swap(Some(5), i64::MAX)];
    let [first, second] = both.map(ask);
    let answers = [first.await, second.await];
    assert_eq!(answers, [QuotaWrite::Done, QuotaWrite::Differs(Some(-7))]);

    // A job of the same name that is created later begins without a level.
    let deleted = kit.store.delete_job(&job_name("mail")).await;
    deleted.expect("a job without tasks");
    kit.put(job("mail")).await;
    assert_eq!(ask(swap(Some(-7), 9)).await, QuotaWrite::Differs(None));
    assert_eq!(ask(swap(None, 9)).await, QuotaWrite::Done);
}

pub async fn g_07_no_more_tasks_get_places_than_may_run_at_once(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let limited = Job {
        quota: Quota {
            running_max: Some(3),
            ..Quota::default()
        },
        ..job("mail")
    };
    kit.put(limited).await;
    let tasks = kit
        .create_all(0, (0..6).map(|_| kit.new_task()).collect())
        .await;
    // The write that creates a task of such a job does not enqueue it.
    assert!(tasks.iter().all(|task| task.kind() == StateKind::New));
    let take = |ms: i64, tasks: &[Task]| {
        let tasks = tasks.iter().filter_map(PlaceRequest::of).collect();
        let take = TakePlaces::new(job_name("mail"), 3, tasks, at(ms));
        let store = kit.store.clone();
        async move { store.take_places(take).await.expect("an answer").granted }
    };
    // The first ones of a call get places, and get them again when they ask again.
    assert_eq!(take(0, &tasks[..2]).await, ids(&tasks[..2]));
    assert_eq!(take(1, &tasks[..2]).await, ids(&tasks[..2]));
    assert_eq!(take(2, &tasks[2..]).await, ids(&tasks[2..3]));
    assert_eq!(take(3, &tasks[3..]).await, []);

    // They keep them while they are enqueued and owned, however long.
    let mut running = Vec::new();
    for task in &tasks[..3] {
        let enqueued = kit.trigger(4, task).await;
        running.push(kit.run(5, &enqueued, "w").await);
    }
    assert_eq!(take(6, &tasks[3..]).await, []);
    assert_eq!(take(3_000_000, &tasks[3..]).await, []);

    // The end of a run frees a place, whether it succeeded or will be tried again.
    running[0] = kit.finish(7, &running[0], success("done")).await;
    assert_eq!(take(3_000_001, &tasks[3..]).await, ids(&tasks[3..4]));
    let again = kit.finish(8, &running[1], retriable("later")).await;
    assert_eq!(again.kind(), StateKind::Retriable);
    assert_eq!(take(3_000_002, &tasks[4..]).await, ids(&tasks[4..5]));
    assert_eq!(take(3_000_003, &[again]).await, []);

    // A place that is not used lapses.
    let lapsed = 3_000_003 + 10_000;
    assert_eq!(take(lapsed, &tasks[5..]).await, ids(&tasks[5..]));

    let missing = StoreError::no_job(&job_name("unknown"));
    let request = PlaceRequest::of(&tasks[0]).into_iter().collect();
    let unknown = TakePlaces::new(job_name("unknown"), 1, request, at(0));
    let refused = kit.store.take_places(unknown).await;
    assert_eq!(refused.unwrap_err().to_string(), missing.to_string());
}

pub async fn g_07_callers_at_once_share_the_places(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(Job {
        quota: Quota {
            running_max: Some(5),
            ..Quota::default()
        },
        ..job("mail")
    })
    .await;
    let new = (0..24).map(|_| kit.task_due(0)).collect();
    let tasks = kit.create_all(0, new).await;
    let mut calls = JoinSet::new();
    for tasks in tasks.chunks(3) {
        let tasks = tasks.iter().filter_map(PlaceRequest::of).collect();
        let take = TakePlaces::new(job_name("mail"), 5, tasks, at(0));
        let store = kit.store.clone();
        calls.spawn(async move { store.take_places(take).await.expect("an answer") });
    }
    let granted = calls.join_all().await;
    let granted = granted.iter().map(|places| places.granted.len());
    let granted = granted.sum::<usize>();
    assert!((1..=5).contains(&granted), "{granted} of 5 places");
}
