//! What the service does by itself.

use std::time::Duration;

use dueline_api::{Report, Status as _};
use dueline_domain::{Policy, StateKind};
use dueline_ports::{TaskStore as _, WorkerStore as _};
use dueline_runtime::{Shutdown, TaskGroup};
use dueline_status_controller::run;

use crate::bench::{Bench, mail, registration, success, worker};

/// The service's loops, while a test goes on.
struct Running {
    group: TaskGroup,
    shutdown: Shutdown,
}

impl Running {
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

/// Lets the paused time run: every timer on the way fires.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Seconds go by in which `worker` gives signs of life.
async fn pass_with_signs_of_life(bench: &Bench, name: &str, seconds: u64) {
    for _ in 0..seconds / 2 {
        bench
            .controller
            .alive(registration(name, false))
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
async fn f_110_finished_tasks_leave_after_their_retention() {
    let bench = Bench::new().await;
    let running = Running::start(&bench);
    let (kept, done) = (bench.started("w").await, bench.started("w").await);
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
    assert_eq!(bench.task(kept.id).await.kind(), StateKind::Processing);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_larger_than_a_batch_is_pruned_in_one_round() {
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
        bench.say(run, action)
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
    let running = Running::start(&bench);
    pass(6).await;
    assert!(bench.store.snapshot().is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_is_forgotten_but_keeps_its_lease() {
    let bench = Bench::new().await;
    let running = Running::start(&bench);
    bench
        .controller
        .alive(registration("silent", false))
        .await
        .unwrap();
    let run = bench.started("silent").await;
    pass_with_signs_of_life(&bench, "live", 28).await;
    assert_eq!(listed(&bench).await.len(), 2, "not before its time");
    pass_with_signs_of_life(&bench, "live", 20).await;
    assert_eq!(listed(&bench).await, [worker("live").to_string()]);
    let task = bench.task(run.id).await;
    assert_eq!(task.state.token(), Some(run.token), "leases rule");
    assert!(bench.sent().is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_embedded_worker_that_falls_silent_loses_its_tasks() {
    let bench = Bench::new().await;
    let running = Running::start(&bench);
    bench
        .controller
        .alive(registration("w", true))
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
async fn time_in_which_the_server_was_down_does_not_count_against_workers() {
    let bench = Bench::new().await;
    bench
        .controller
        .alive(registration("w", false))
        .await
        .unwrap();
    pass(3_600).await;
    let bench = bench.restarted();
    let running = Running::start(&bench);
    pass(25).await;
    assert_eq!(listed(&bench).await.len(), 1);
    pass(25).await;
    assert!(
        listed(&bench).await.is_empty(),
        "a dead one goes all the same"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_forgets_nobody() {
    let bench = Bench::new().await;
    let running = Running::start(&bench);
    pass_with_signs_of_life(&bench, "w", 10).await;
    for skew_ms in [3_600_000, -3_600_000] {
        bench.clock.set_skew(skew_ms);
        pass(10).await;
        assert_eq!(listed(&bench).await.len(), 1);
        pass_with_signs_of_life(&bench, "w", 40).await;
        assert_eq!(listed(&bench).await.len(), 1);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_given_to_another_process_count() {
    let here = Bench::new().await;
    let there = here.restarted();
    let running = Running::start(&here);
    here.controller
        .alive(registration("w", false))
        .await
        .unwrap();
    pass_with_signs_of_life(&there, "w", 120).await;
    assert_eq!(listed(&here).await.len(), 1);
    pass(50).await;
    assert!(listed(&here).await.is_empty());
    running.stop().await;
}
