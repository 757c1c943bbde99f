//! The pruner and the expiry of workers.

use std::time::Duration;

use dueline_api::{Action, Report, StatusController as _};
use dueline_domain::{Policy, StateKind};
use dueline_ports::{TaskStore as _, WorkerStore as _};
use dueline_runtime::{Shutdown, TaskGroup};
use dueline_status_controller::run;

use crate::bench::{Bench, mail, registration, success, worker};

/// The running background loops.
struct RunningLoops {
    group: TaskGroup,
    shutdown: Shutdown,
}

impl RunningLoops {
    fn start(bench: &Bench) -> Self {
        let (group, shutdown) = (TaskGroup::new(), Shutdown::new());
        group.spawn("status", run(bench.controller.clone(), shutdown.clone()));
        Self { group, shutdown }
    }

    async fn stop(self) {
        self.shutdown.stop_intake();
        self.group.wait().await.unwrap();
    }
}

/// Advances the paused time; every timer until then fires.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Advances the time while the worker `name` renews its registration.
async fn pass_with_renewals(bench: &Bench, name: &str, seconds: u64) {
    for _ in 0..seconds / 2 {
        bench
            .controller
            .register_worker(registration(name, false))
            .await
            .unwrap();
        pass(2).await;
    }
}

async fn listed(bench: &Bench) -> Vec<String> {
    let records = bench.store.workers().await.unwrap();
    records.iter().map(|record| record.id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn f_110_finished_tasks_are_deleted_after_their_retention() {
    let bench = Bench::new().await;
    let running = RunningLoops::start(&bench);
    let (unfinished, done) = (bench.started("w").await, bench.started("w").await);
    bench.report(&done, success()).await.unwrap();
    pass(60).await;
    assert!(bench.store.get(&mail(), &done.id).await.unwrap().is_some());
    let retention = Some(Duration::from_secs(2));
    bench
        .put_job(Policy {
            retention,
            ..Policy::default()
        })
        .await;
    pass(6).await;
    assert!(bench.store.get(&mail(), &done.id).await.unwrap().is_none());
    let task = bench.task(unfinished.id).await;
    assert_eq!(task.kind(), StateKind::Processing);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn more_finished_tasks_than_a_batch_are_pruned_in_one_round() {
    let bench = Bench::new().await;
    let mut claims = Vec::new();
    for _ in 0..2_500 {
        claims.push(bench.submit(bench.new_task()).await);
    }
    let owned = bench.controller.claim(&worker("w"), claims, false).await;
    let started_at = owned[0].as_ref().map(|run| run.claimed_at).ok();
    let done = |run: &dueline_api::Assignment| -> Report {
        let action = dueline_api::Action::Finish {
            started_at,
            outcome: dueline_domain::Outcome::Success { result: None },
        };
        bench.report_of(run, action)
    };
    let reports = owned.iter().flatten().map(done).collect();
    bench.controller.report(reports).await;
    let retention = Some(Duration::from_secs(1));
    bench
        .put_job(Policy {
            retention,
            ..Policy::default()
        })
        .await;
    let running = RunningLoops::start(&bench);
    pass(6).await;
    assert!(bench.store.snapshot().is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_worker_is_removed_but_keeps_its_lease() {
    let bench = Bench::new().await;
    let policy = Policy {
        heartbeat_timeout: Duration::from_secs(300),
        heartbeat_increment: Duration::from_secs(300),
        ..Policy::default()
    };
    bench.put_job(policy).await;
    let running = RunningLoops::start(&bench);
    bench
        .controller
        .register_worker(registration("silent", false))
        .await
        .unwrap();
    let run = bench.started("silent").await;
    pass_with_renewals(&bench, "live", 28).await;
    assert_eq!(listed(&bench).await.len(), 2, "not before its timeout");
    pass_with_renewals(&bench, "live", 20).await;
    assert_eq!(listed(&bench).await, [worker("live").to_string()]);
    let task = bench.task(run.id).await;
    assert_eq!(task.state.token(), Some(run.token), "the lease holds");
    assert!(bench.sent().is_empty());
    pass(320).await;
    let task = bench.task(run.id).await;
    assert_eq!(task.kind(), StateKind::Enqueued, "the lease is over");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_silent_worker_are_reclaimed_although_the_clock_has_stepped_back() {
    for skew_ms in [0, -3_600_000, -86_400_000] {
        let bench = Bench::new().await;
        let running = RunningLoops::start(&bench);
        for name in ["silent", "live"] {
            let registration = registration(name, false);
            let registered = bench.controller.register_worker(registration).await;
            registered.unwrap();
        }
        let lost = bench.started("silent").await;
        let claimed = bench.claimed("silent").await;
        let kept = bench.started("live").await;
        bench.clock.set_skew(skew_ms);
        pass_with_renewals(&bench, "live", 28).await;
        assert_eq!(bench.task(lost.id).await.state.token(), Some(lost.token));
        pass_with_renewals(&bench, "live", 32).await;
        for run in [lost, claimed] {
            assert_eq!(bench.task(run.id).await.kind(), StateKind::Enqueued);
        }
        // The lease of the live worker has lapsed as well, but the consumer decides that.
        assert_eq!(bench.task(kept.id).await.state.token(), Some(kept.token));
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_that_heartbeats_its_run_keeps_it() {
    let bench = Bench::new().await;
    let running = RunningLoops::start(&bench);
    let registered = bench
        .controller
        .register_worker(registration("silent", false))
        .await;
    registered.unwrap();
    let run = bench.started("silent").await;
    bench.clock.set_skew(-3_600_000);
    for _ in 0..20 {
        pass(4).await;
        bench.report(&run, Action::Heartbeat).await.unwrap();
    }
    assert!(listed(&bench).await.is_empty());
    assert_eq!(bench.task(run.id).await.state.token(), Some(run.token));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tasks_of_an_expired_embedded_worker_are_reclaimed() {
    let bench = Bench::new().await;
    let running = RunningLoops::start(&bench);
    bench
        .controller
        .register_worker(registration("w", true))
        .await
        .unwrap();
    let run = bench.started("w").await;
    pass(45).await;
    assert!(listed(&bench).await.is_empty());
    assert_eq!(bench.task(run.id).await.kind(), StateKind::Enqueued);
    assert_eq!(bench.sent().len(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_downtime_of_the_server_does_not_expire_workers() {
    let bench = Bench::new().await;
    bench
        .controller
        .register_worker(registration("w", false))
        .await
        .unwrap();
    pass(3_600).await;
    let bench = bench.restarted();
    let running = RunningLoops::start(&bench);
    pass(25).await;
    assert_eq!(listed(&bench).await.len(), 1);
    pass(25).await;
    assert!(
        listed(&bench).await.is_empty(),
        "a dead worker expires after the restart"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_wall_clock_expires_no_worker() {
    let bench = Bench::new().await;
    let running = RunningLoops::start(&bench);
    pass_with_renewals(&bench, "w", 10).await;
    for skew_ms in [3_600_000, -3_600_000] {
        bench.clock.set_skew(skew_ms);
        pass(10).await;
        assert_eq!(listed(&bench).await.len(), 1);
        pass_with_renewals(&bench, "w", 40).await;
        assert_eq!(listed(&bench).await.len(), 1);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn renewals_with_another_process_count() {
    let here = Bench::new().await;
    let there = here.restarted();
    let running = RunningLoops::start(&here);
    here.controller
        .register_worker(registration("w", false))
        .await
        .unwrap();
    pass_with_renewals(&there, "w", 120).await;
    assert_eq!(listed(&here).await.len(), 1);
    pass(50).await;
    assert!(listed(&here).await.is_empty());
    running.stop().await;
}
