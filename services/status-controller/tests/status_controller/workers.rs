//! Who is there, and what happens to what they leave behind.

use std::time::Duration;

use dueline_api::{Registration, ServedJob, Status as _};
use dueline_domain::StateKind;
use dueline_ports::{Clock as _, WorkerRecord, WorkerStore as _};
use dueline_status_controller::{Config, recover};

use crate::bench::{Bench, mail, registration, worker};

async fn only_record(bench: &Bench) -> WorkerRecord {
    let mut records = bench.store.workers().await.unwrap();
    assert_eq!(records.len(), 1);
    records.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_leaves_hands_its_tasks_on_at_once() {
    let bench = Bench::new().await;
    bench
        .controller
        .alive(registration("w", false))
        .await
        .unwrap();
    let claimed = bench.claimed("w").await;
    let running = bench.started("w").await;
    let other = bench.started("v").await;
    bench.controller.leave(&worker("w")).await.unwrap();
    let mut sent: Vec<_> = bench.sent().iter().map(|sent| sent.id).collect();
    sent.sort_unstable();
    let mut expected = [claimed.id, running.id];
    expected.sort_unstable();
    assert_eq!(sent, expected);
    let task = bench.task(running.id).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 1));
    assert_eq!(bench.task(claimed.id).await.tries, 0);
    assert_eq!(bench.task(other.id).await.kind(), StateKind::Processing);
    assert!(bench.store.workers().await.unwrap().is_empty());
    // Leaving twice, or without ever having been there, is fine.
    bench.controller.leave(&worker("w")).await.unwrap();
    assert!(bench.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f_112_what_embedded_workers_left_running_is_handed_on_at_start() {
    let bench = Bench::new().await;
    bench
        .controller
        .alive(registration("here", true))
        .await
        .unwrap();
    bench
        .controller
        .alive(registration("there", false))
        .await
        .unwrap();
    let claimed = bench.claimed("here").await;
    let running = bench.started("here").await;
    let remote = bench.started("there").await;
    let unregistered = bench.started("nobody").await;

    let bench = bench.restarted();
    assert_eq!(recover(bench.controller.clone()).await, 2);
    assert_eq!(bench.sent().len(), 2);
    assert_eq!(bench.task(claimed.id).await.kind(), StateKind::Enqueued);
    let task = bench.task(running.id).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 1));
    assert_eq!(task.history.unwrap().runs.len(), 1, "history says so");
    // f_114: workers elsewhere go on as if nothing had happened.
    for left_alone in [&remote, &unregistered] {
        let task = bench.task(left_alone.id).await;
        assert_eq!(task.kind(), StateKind::Processing);
        assert_eq!(task.state.token(), Some(left_alone.token));
    }
    assert_eq!(only_record(&bench).await.id, worker("there"));
    assert_eq!(recover(bench.controller.clone()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn recovery_spares_embedded_workers_of_this_very_process() {
    let bench = Bench::new().await.restarted();
    bench
        .controller
        .alive(registration("w", true))
        .await
        .unwrap();
    let running = bench.started("w").await;
    assert_eq!(recover(bench.controller.clone()).await, 0);
    assert_eq!(bench.task(running.id).await.kind(), StateKind::Processing);
    only_record(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn f_115_a_worker_is_on_the_list_with_its_details() {
    let bench = Bench::new().await;
    let alive = bench.controller.alive(registration("w", true)).await;
    assert_eq!(alive.unwrap().interval, Config::default().interval);
    let now = bench.clock.now();
    let expected = WorkerRecord {
        id: worker("w"),
        kind: "executor".into(),
        jobs: vec![mail()],
        handlers: vec!["exec".into()],
        concurrency: 4,
        embedded: true,
        started_at: now,
        seen_at: now,
    };
    assert_eq!(only_record(&bench).await, expected);
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_are_stored_now_and_then_and_changes_at_once() {
    let bench = Bench::new().await;
    let started_at = bench.clock.now();
    let mut stored = std::collections::BTreeSet::new();
    for _ in 0..10 {
        bench
            .controller
            .alive(registration("w", false))
            .await
            .unwrap();
        stored.insert(only_record(&bench).await.seen_at);
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    assert_eq!(stored.len(), 5, "every second sign of life");
    let grown = Registration {
        concurrency: 8,
        ..registration("w", false)
    };
    bench.controller.alive(grown).await.unwrap();
    let record = only_record(&bench).await;
    assert_eq!((record.concurrency, record.seen_at), (8, bench.clock.now()));
    assert_eq!(record.started_at, started_at);
}

#[tokio::test(start_paused = true)]
async fn f_115_a_worker_keeps_its_start_when_the_server_restarts() {
    let bench = Bench::new().await;
    bench
        .controller
        .alive(registration("w", false))
        .await
        .unwrap();
    let started_at = only_record(&bench).await.started_at;
    tokio::time::advance(Duration::from_secs(9)).await;
    let bench = bench.restarted();
    bench
        .controller
        .alive(registration("w", false))
        .await
        .unwrap();
    let record = only_record(&bench).await;
    assert_eq!(record.started_at, started_at);
    assert_eq!(record.seen_at, bench.clock.now());
}

#[tokio::test(start_paused = true)]
async fn controllers_learn_which_jobs_there_are() {
    let bench = Bench::new().await;
    let served = ServedJob {
        name: mail(),
        handler: "exec".into(),
    };
    assert_eq!(bench.controller.jobs().await.unwrap(), [served]);
}
