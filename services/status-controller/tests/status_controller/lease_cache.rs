//! Heartbeats that need no write.

use std::time::Duration;

use dueline_api::{Action, Assignment, ReportAck, StatusController as _};
use dueline_domain::{Event, Policy, RunningCancel, StateKind, Verb};
use dueline_ports::Clock as _;
use tokio::time::{Instant, advance};

use crate::{
    bench::{Bench, success, worker},
    counting::CountingStore,
};

const MS: Duration = Duration::from_millis(1);

/// A bench whose job has this policy, and a run that started with its claim.
async fn running(policy: Policy) -> (Bench, std::sync::Arc<CountingStore>, Assignment) {
    let (bench, store) = Bench::expensive().await;
    bench.put_job(policy).await;
    let message = bench.submit(bench.new_task()).await;
    let run = bench.claim_and_start(&message).await;
    assert_eq!(store.commands(), [Verb::Claim]);
    (bench, store, run)
}

fn timeouts(timeout: u32, increment: u32) -> Policy {
    Policy {
        heartbeat_timeout: MS * timeout,
        heartbeat_increment: MS * increment,
        ..Policy::default()
    }
}

impl Bench {
    async fn heartbeat(&self, run: &Assignment) -> ReportAck {
        self.report(run, Action::Heartbeat).await.unwrap()
    }

    /// How much of the lease in the store is left.
    async fn left(&self, run: &Assignment) -> Duration {
        let task = self.task(run.id).await;
        let lease = task.lease().expect("the run is owned");
        lease.ends_at().since(self.clock.now())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_minute_costs_at_most_one_write_per_half_timeout_and_keeps_its_lease() {
    // The heartbeats of an executor drift a little, and each call takes a different time.
    for (first, every, jitter) in [(2_000, 2_001, 0), (1_000, 2_001, 7), (1_499, 2_003, 40)] {
        let (bench, store, run) = running(Policy::default()).await;
        let (begun, mut at, mut number) = (Instant::now(), MS * first, 0);
        while at < MS * 60_000 {
            let late = MS * (number * 13 % (jitter + 1));
            tokio::time::sleep_until(begun + at + late).await;
            // The owner stops the run two seconds before the end of the lease.
            let left = bench.left(&run).await;
            assert!(left > MS * 2_400, "{left:?} were left");
            let ack = bench.heartbeat(&run).await;
            assert_eq!(ack.state, StateKind::Processing);
            let left = bench.left(&run).await;
            assert_eq!(ack.lease, Some(left), "the remaining lease");
            (at, number) = (at + MS * every, number + 1);
        }
        let writes = store.commands();
        assert!(writes.iter().all(|verb| *verb == Verb::Heartbeat));
        assert!((10..=15).contains(&writes.len()), "{} writes", writes.len());
        bench.report(&run, success()).await.unwrap();
        assert_eq!(store.commands(), [Verb::Finish]);
        assert_eq!(bench.task(run.id).await.tries, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_increment_keeps_its_lease_and_writes_twice_per_increment_at_most() {
    // Executors heartbeat four times per increment, and stop when a quarter of one is left.
    let (bench, store, run) = running(timeouts(8_000, 1_000)).await;
    let begun = Instant::now();
    for number in 1..80 {
        tokio::time::sleep_until(begun + MS * 250 * number).await;
        let left = bench.left(&run).await;
        assert!(left > MS * 250, "{left:?} were left");
        bench.heartbeat(&run).await;
    }
    let writes = store.commands().len();
    assert!((12..=40).contains(&writes), "{writes} writes in 20 s");
}

#[tokio::test(start_paused = true)]
async fn near_the_run_timeout_no_useless_heartbeat_is_written() {
    let policy = Policy {
        run_timeout: Some(MS * 10_000),
        ..Policy::default()
    };
    let (bench, store, run) = running(policy).await;
    let begun = Instant::now();
    for second in 1..10 {
        tokio::time::sleep_until(begun + MS * 1_000 * second).await;
        let ack = bench.heartbeat(&run).await;
        assert_eq!(ack.lease, Some(bench.left(&run).await));
    }
    assert_eq!(store.commands().len(), 2, "at four and at eight seconds");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_that_do_not_extend_the_lease_are_all_written() {
    let (bench, store, run) = running(timeouts(8_000, 0)).await;
    for _ in 0..3 {
        advance(MS * 100).await;
        bench.heartbeat(&run).await;
    }
    assert_eq!(store.commands().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_every_heartbeat_is_written() {
    let bench = Bench::new().await;
    let message = bench.submit(bench.new_task()).await;
    let run = bench.claim_and_start(&message).await;
    for _ in 0..3 {
        advance(MS * 100).await;
        bench.heartbeat(&run).await;
        let heartbeat_at = bench.task(run.id).await.lease().unwrap().heartbeat_at;
        assert_eq!(heartbeat_at, bench.clock.now());
    }
}

#[tokio::test(start_paused = true)]
async fn g_08_a_cancellation_request_is_noticed_within_half_the_timeout() {
    for cancelled_after in [1, 500, 1_900, 2_100, 3_999] {
        let (bench, _, run) = running(Policy::default()).await;
        let begun = Instant::now();
        let mut cancelled_at = None;
        let noticed_at = loop {
            tokio::time::sleep(MS * 100).await;
            if cancelled_at.is_none() && begun.elapsed() >= MS * cancelled_after {
                cancelled_at = Some(Instant::now());
                let (running, reason) = (RunningCancel::Request, None);
                bench.apply(run.id, Event::Cancel { running, reason }).await;
            }
            if bench.heartbeat(&run).await.cancel_requested {
                break Instant::now();
            }
        };
        let took = noticed_at - cancelled_at.unwrap();
        assert!(took <= MS * 4_000, "{took:?} after {cancelled_after}");
        advance(MS * 100).await;
        let ack = bench.heartbeat(&run).await;
        assert!(ack.cancel_requested, "the request is cached");
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_report_of_the_run_replaces_or_removes_the_cached_lease() {
    let (bench, store, run) = running(Policy::default()).await;
    advance(MS * 3_000).await;
    let payload = "half".into();
    bench
        .report(&run, Action::Checkpoint { payload })
        .await
        .unwrap();
    advance(MS * 2_900).await;
    bench.heartbeat(&run).await;
    assert_eq!(store.commands(), [Verb::Checkpoint]);

    // The lease is shortened, so the next heartbeats are due sooner.
    let by = MS * 3_000;
    bench.report(&run, Action::Extend { by }).await.unwrap();
    let ack = bench.heartbeat(&run).await;
    assert_eq!(ack.lease, Some(bench.left(&run).await));
    assert_eq!(store.commands(), [Verb::Extend, Verb::Heartbeat]);

    bench.report(&run, success()).await.unwrap();
    let late = bench.report(&run, Action::Heartbeat).await.unwrap_err();
    assert!(late.is_lost());
    assert_eq!(store.commands(), [Verb::Finish, Verb::Heartbeat]);
}

#[tokio::test(start_paused = true)]
async fn a_start_report_is_cached_like_a_claim_that_starts() {
    let (bench, store) = Bench::expensive().await;
    let run = bench.started("w").await;
    store.commands();
    advance(MS * 2_000).await;
    let ack = bench.heartbeat(&run).await;
    assert_eq!(ack.lease, Some(MS * 6_000));
    assert!(store.commands().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_is_noticed_by_the_first_heartbeat_that_must_be_written() {
    let (bench, store, run) = running(Policy::default()).await;
    store.set_unavailable(true);
    advance(MS * 2_000).await;
    bench.heartbeat(&run).await;
    advance(MS * 2_000).await;
    let error = bench.report(&run, Action::Heartbeat).await.unwrap_err();
    assert!(error.is_retryable());
    store.set_unavailable(false);
    advance(MS * 100).await;
    store.commands();
    let ack = bench.heartbeat(&run).await;
    assert_eq!(ack.lease, Some(MS * 8_000), "an error is not cached");
    assert_eq!(store.commands(), [Verb::Heartbeat]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_in_order_whether_from_memory_or_not() {
    let (bench, store, run) = running(Policy::default()).await;
    let other = bench.started("v").await;
    store.commands();
    let reports = vec![
        bench.report_of(&run, Action::Heartbeat),
        bench.report_of(&other, success()),
        bench.report_of(&run, Action::Abandon),
        bench.report_of(&run, Action::Heartbeat),
    ];
    let answers = bench.controller.report(reports).await;
    let results: Vec<_> = answers
        .iter()
        .map(|answer| {
            answer
                .as_ref()
                .map(|ack| ack.state)
                .map_err(|e| e.reason().name())
        })
        .collect();
    let expected = [
        Ok(StateKind::Processing),
        Ok(StateKind::Succeeded),
        Ok(StateKind::Enqueued),
        Err("lost"),
    ];
    assert_eq!(results, expected);
    let written = [Verb::Finish, Verb::Abandon, Verb::Heartbeat];
    assert_eq!(store.commands(), written);
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_deregistered_worker_are_not_cached() {
    let (bench, _, run) = running(Policy::default()).await;
    bench.heartbeat(&run).await;
    bench
        .controller
        .deregister_worker(&worker("w"))
        .await
        .unwrap();
    let refused = bench.report(&run, Action::Heartbeat).await.unwrap_err();
    assert!(refused.is_lost());
}
