//! Heartbeats that need no write.

use std::time::Duration;

use dueline_api::{Action, Assignment, Reported, Status as _};
use dueline_domain::{Event, Policy, RunningCancel, StateKind, Verb};
use dueline_ports::Clock as _;
use tokio::time::{Instant, advance};

use crate::{
    bench::{Bench, success, worker},
    counting::CountingStore,
};

const MS: Duration = Duration::from_millis(1);

/// A bench whose job has these times, and a run that began with its claim.
async fn running(policy: Policy) -> (Bench, std::sync::Arc<CountingStore>, Assignment) {
    let (bench, store) = Bench::dear().await;
    bench.put_job(policy).await;
    let message = bench.submit(bench.new_task()).await;
    let run = bench.claim_and_start(&message).await;
    assert_eq!(store.commands(), [Verb::Claim]);
    (bench, store, run)
}

fn times(timeout: u32, increment: u32) -> Policy {
    Policy {
        heartbeat_timeout: MS * timeout,
        heartbeat_increment: MS * increment,
        ..Policy::default()
    }
}

impl Bench {
    async fn beat(&self, run: &Assignment) -> Reported {
        self.report(run, Action::Heartbeat).await.unwrap()
    }

    /// How long the lease in the store still holds.
    async fn left(&self, run: &Assignment) -> Duration {
        let task = self.task(run.id).await;
        let lease = task.lease().expect("the run is owned");
        lease.ends_at().since(self.clock.now())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_minute_costs_at_most_one_write_per_half_timeout_and_its_lease_never_runs_low() {
    // The heartbeats of an executor drift a little, and each takes its own time on the way.
    for (first, every, jitter) in [(2_000, 2_001, 0), (1_000, 2_001, 7), (1_499, 2_003, 40)] {
        let (bench, store, run) = running(Policy::default()).await;
        let (begun, mut at, mut number) = (Instant::now(), MS * first, 0);
        while at < MS * 60_000 {
            let late = MS * (number * 13 % (jitter + 1));
            tokio::time::sleep_until(begun + at + late).await;
            // The owner stops two seconds before the end that it knows.
            let left = bench.left(&run).await;
            assert!(left > MS * 2_400, "{left:?} were left");
            let told = bench.beat(&run).await;
            assert_eq!(told.state, StateKind::Processing);
            assert_eq!(
                told.lease,
                Some(bench.left(&run).await),
                "what truly remains"
            );
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
    let (bench, store, run) = running(times(8_000, 1_000)).await;
    let begun = Instant::now();
    for number in 1..80 {
        tokio::time::sleep_until(begun + MS * 250 * number).await;
        let left = bench.left(&run).await;
        assert!(left > MS * 250, "{left:?} were left");
        bench.beat(&run).await;
    }
    let writes = store.commands().len();
    assert!((12..=40).contains(&writes), "{writes} writes in 20 s");
}

#[tokio::test(start_paused = true)]
async fn near_the_run_timeout_nothing_is_written_for_nothing() {
    let policy = Policy {
        run_timeout: Some(MS * 10_000),
        ..Policy::default()
    };
    let (bench, store, run) = running(policy).await;
    let begun = Instant::now();
    for second in 1..10 {
        tokio::time::sleep_until(begun + MS * 1_000 * second).await;
        let told = bench.beat(&run).await;
        assert_eq!(told.lease, Some(bench.left(&run).await));
    }
    assert_eq!(store.commands().len(), 2, "at four and at eight seconds");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_that_do_not_help_are_all_written() {
    let (bench, store, run) = running(times(8_000, 0)).await;
    for _ in 0..3 {
        advance(MS * 100).await;
        bench.beat(&run).await;
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
        bench.beat(&run).await;
        let heard_at = bench.task(run.id).await.lease().unwrap().heartbeat_at;
        assert_eq!(heard_at, bench.clock.now());
    }
}

#[tokio::test(start_paused = true)]
async fn g_08_a_cancel_request_is_noticed_within_half_the_timeout() {
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
            if bench.beat(&run).await.cancel_requested {
                break Instant::now();
            }
        };
        let took = noticed_at - cancelled_at.unwrap();
        assert!(took <= MS * 4_000, "{took:?} after {cancelled_after}");
        advance(MS * 100).await;
        assert!(bench.beat(&run).await.cancel_requested, "it is remembered");
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_report_of_the_run_renews_or_ends_what_is_remembered() {
    let (bench, store, run) = running(Policy::default()).await;
    advance(MS * 3_000).await;
    let payload = "half".into();
    bench
        .report(&run, Action::Checkpoint { payload })
        .await
        .unwrap();
    advance(MS * 2_900).await;
    bench.beat(&run).await;
    assert_eq!(store.commands(), [Verb::Checkpoint]);

    // The lease is shortened, so the next heartbeats are due sooner.
    let by = MS * 3_000;
    bench.report(&run, Action::Extend { by }).await.unwrap();
    let told = bench.beat(&run).await;
    assert_eq!(told.lease, Some(bench.left(&run).await));
    assert_eq!(store.commands(), [Verb::Extend, Verb::Heartbeat]);

    bench.report(&run, success()).await.unwrap();
    let late = bench.report(&run, Action::Heartbeat).await.unwrap_err();
    assert!(late.is_lost());
    assert_eq!(store.commands(), [Verb::Finish, Verb::Heartbeat]);
}

#[tokio::test(start_paused = true)]
async fn a_started_report_is_remembered_like_a_claim_that_starts() {
    let (bench, store) = Bench::dear().await;
    let run = bench.started("w").await;
    store.commands();
    advance(MS * 2_000).await;
    let told = bench.beat(&run).await;
    assert_eq!(told.lease, Some(MS * 6_000));
    assert!(store.commands().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_noticed_by_the_first_heartbeat_that_must_be_written() {
    let (bench, store, run) = running(Policy::default()).await;
    store.set_away(true);
    advance(MS * 2_000).await;
    bench.beat(&run).await;
    advance(MS * 2_000).await;
    let error = bench.report(&run, Action::Heartbeat).await.unwrap_err();
    assert!(error.is_retryable());
    store.set_away(false);
    advance(MS * 100).await;
    store.commands();
    let told = bench.beat(&run).await;
    assert_eq!(told.lease, Some(MS * 8_000), "an error is not remembered");
    assert_eq!(store.commands(), [Verb::Heartbeat]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_in_order_whether_from_memory_or_not() {
    let (bench, store, run) = running(Policy::default()).await;
    let other = bench.started("v").await;
    store.commands();
    let reports = vec![
        bench.say(&run, Action::Heartbeat),
        bench.say(&other, success()),
        bench.say(&run, Action::Abandon),
        bench.say(&run, Action::Heartbeat),
    ];
    let answers = bench.controller.report(reports).await;
    let told: Vec<_> = answers
        .iter()
        .map(|answer| {
            answer
                .as_ref()
                .map(|told| told.state)
                .map_err(|e| e.reason())
        })
        .collect();
    let expected = [
        Ok(StateKind::Processing),
        Ok(StateKind::Succeeded),
        Ok(StateKind::Enqueued),
        Err("lost"),
    ];
    assert_eq!(told, expected);
    let written = [Verb::Finish, Verb::Abandon, Verb::Heartbeat];
    assert_eq!(store.commands(), written);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_a_worker_that_left() {
    let (bench, _, run) = running(Policy::default()).await;
    bench.beat(&run).await;
    bench.controller.leave(&worker("w")).await.unwrap();
    let refused = bench.report(&run, Action::Heartbeat).await.unwrap_err();
    assert!(refused.is_lost());
}
