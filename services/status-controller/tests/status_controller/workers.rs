//! Registrations of workers, and the tasks of workers that are gone.

use std::time::Duration;

use dueline_api::{Registration, ServedJob, StatusController as _};
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
async fn tasks_of_a_worker_that_deregisters_are_reclaimed_at_once() {
    let bench = Bench::new().await;
    bench
        .controller
        .register_worker(registration("w", false))
        .await
        .unwrap();
    let claimed = bench.claimed("w").await;
    let running = bench.started("w").await;
    let other = bench.started("v").await;
    bench
        .controller
        .deregister_worker(&worker("w"))
        .await
        .unwrap();
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
    // Deregistering twice, or without a registration, succeeds.
    bench
        .controller
        .deregister_worker(&worker("w"))
        .await
        .unwrap();
    assert!(bench.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f_112_tasks_of_embedded_workers_are_reclaimed_when_the_server_starts() {
    let bench = Bench::new().await;
    bench
        .controller
        .register_worker(registration("here", true))
        .await
        .unwrap();
    bench
        .controller
        .register_worker(registration("there", false))
        .await
        .unwrap();
    let claimed = bench.claimed("here").await;
    let running = bench.started("here").await;
    let remote = bench.started("there").await;
    let unregistered = bench.started("unregistered").await;

    let bench = bench.restarted();
    assert_eq!(recover(bench.controller.clone()).await, 2);
    assert_eq!(bench.sent().len(), 2);
    assert_eq!(bench.task(claimed.id).await.kind(), StateKind::Enqueued);
    let task = bench.task(running.id).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 1));
    assert_eq!(task.history.unwrap().runs.len(), 1, "the run is recorded");
    // f_114: workers elsewhere are not affected.
    for unaffected in [&remote, &unregistered] {
        let task = bench.task(unaffected.id).await;
        assert_eq!(task.kind(), StateKind::Processing);
        assert_eq!(task.state.token(), Some(unaffected.token));
    }
    assert_eq!(only_record(&bench).await.id, worker("there"));
    assert_eq!(recover(bench.controller.clone()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn recovery_does_not_reclaim_tasks_of_workers_embedded_in_the_same_process() {
    let bench = Bench::new().await.restarted();
    bench
        .controller
        .register_worker(registration("w", true))
        .await
        .unwrap();
    let running = bench.started("w").await;
    assert_eq!(recover(bench.controller.clone()).await, 0);
    assert_eq!(bench.task(running.id).await.kind(), StateKind::Processing);
    only_record(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn f_115_a_worker_is_listed_with_its_details() {
    let bench = Bench::new().await;
    let registered = bench
        .controller
        .register_worker(registration("w", true))
        .await;
    assert_eq!(registered.unwrap().interval, Config::default().interval);
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
        metadata: dueline_ports::Metadata::new(),
    };
    assert_eq!(only_record(&bench).await, expected);
}

#[tokio::test(start_paused = true)]
async fn every_second_renewal_is_stored_and_changes_are_stored_at_once() {
    let bench = Bench::new().await;
    let started_at = bench.clock.now();
    let mut stored = std::collections::BTreeSet::new();
    for _ in 0..10 {
        bench
            .controller
            .register_worker(registration("w", false))
            .await
            .unwrap();
        stored.insert(only_record(&bench).await.seen_at);
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    assert_eq!(stored.len(), 5, "every second renewal");
    let changed = Registration {
        concurrency: 8,
        ..registration("w", false)
    };
    bench.controller.register_worker(changed).await.unwrap();
    let record = only_record(&bench).await;
    assert_eq!((record.concurrency, record.seen_at), (8, bench.clock.now()));
    assert_eq!(record.started_at, started_at);
}

#[tokio::test(start_paused = true)]
async fn f_115_a_worker_keeps_its_start_when_the_server_restarts() {
    let bench = Bench::new().await;
    bench
        .controller
        .register_worker(registration("w", false))
        .await
        .unwrap();
    let started_at = only_record(&bench).await.started_at;
    tokio::time::advance(Duration::from_secs(9)).await;
    let bench = bench.restarted();
    bench
        .controller
        .register_worker(registration("w", false))
        .await
        .unwrap();
    let record = only_record(&bench).await;
    assert_eq!(record.started_at, started_at);
    assert_eq!(record.seen_at, bench.clock.now());
}

#[tokio::test(start_paused = true)]
async fn the_served_jobs_are_listed_for_controllers() {
    let bench = Bench::new().await;
    let served = ServedJob {
        name: mail(),
        handler: "exec".into(),
    };
    assert_eq!(bench.controller.jobs().await.unwrap(), [served]);
}
