//! Runs stop before their lease ends, and after a stop signal.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use dueline_api::{Action, Assignment, Report, ReportAck};
use dueline_domain::{Outcome, Policy, RetryClass};
use dueline_executor::{Registry, StopReason, Success};
use tokio::time::Instant;

use crate::{
    fake::{error_of, is_abandon, is_finish, lost, ms, number, ok, task, unavailable},
    rig::Rig,
    runs::registry,
};

/// Why a run got its stop signal, and how long after its begin.
type Stop = Arc<Mutex<Option<(StopReason, Duration)>>>;

/// A handler that waits for its stop signal, and then obeys or ignores it.
fn waiting(obeys: bool) -> (Registry, Stop) {
    let stop = Stop::default();
    let recorded = stop.clone();
    let registry = registry(move |task| {
        let recorded = recorded.clone();
        async move {
            let begun = Instant::now();
            let reason = task.stopped().await;
            *recorded.lock().unwrap() = Some((reason, begun.elapsed()));
            if !obeys {
                std::future::pending::<()>().await;
            }
            Err("stopped".into())
        }
    });
    (registry, stop)
}

fn times(timeout: u64, increment: u64) -> Assignment {
    Assignment {
        heartbeat_timeout: ms(timeout),
        heartbeat_increment: ms(increment),
        ..task(1)
    }
}

fn is_heartbeat(report: &Report) -> bool {
    matches!(report.action, Action::Heartbeat)
}

#[track_caller]
fn assert_near(actual: Duration, expected: u64) {
    let gap = actual.abs_diff(ms(expected));
    assert!(gap < ms(60), "{actual:?} is not near {expected} ms");
}

#[tokio::test(start_paused = true)]
async fn f_046_heartbeats_of_the_handler_keep_a_run_alive() {
    let rig = Rig::start(registry(|task| async move {
        for _ in 0..10 {
            tokio::time::sleep(ms(500)).await;
            task.heartbeat().await?;
        }
        assert!(!task.is_expired());
        Ok(Success::default())
    }));
    rig.controller.push([times(1_000, 1_000)]);
    let ended = rig.controller.outcome().await;
    assert_eq!(ended, Outcome::Success { result: None });
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_046_the_executor_keeps_long_runs_alive_with_one_batch_per_interval() {
    let rig = Rig::start(registry(|_| async {
        tokio::time::sleep(ms(61_000)).await;
        Ok(Success::default())
    }));
    rig.controller.push((0..10).map(task));
    let outcomes = rig.controller.outcomes(10).await;
    assert!(
        outcomes
            .iter()
            .all(|it| matches!(it.1, Outcome::Success { .. }))
    );
    let controller = rig.controller.clone();
    rig.drain().await;
    let state = controller.state();
    let heartbeats = state.reports.iter().filter(|it| is_heartbeat(&it.1));
    let heartbeats = heartbeats.count();
    assert!((280..=310).contains(&heartbeats), "{heartbeats} heartbeats");
    assert!(state.batches.len() < 40, "{} calls", state.batches.len());
}

#[tokio::test(start_paused = true)]
async fn f_046_a_lease_shorter_than_the_interval_gets_more_frequent_heartbeats() {
    for (timeout, increment) in [(1_000, 1_000), (8_000, 1_000)] {
        let rig = Rig::start(registry(|task| async move {
            let is_short = number(task.id()) > 0;
            tokio::time::sleep(ms(if is_short { 3_000 } else { 20_000 })).await;
            assert!(!task.is_expired());
            Ok(Success::default())
        }));
        // A run with the usual lease is in progress and does not delay the heartbeats of the short one.
        rig.controller.push([task(0)]);
        tokio::time::sleep(ms(2_500)).await;
        rig.controller.push([Assignment {
            heartbeat_timeout: ms(timeout),
            heartbeat_increment: ms(increment),
            ..task(1)
        }]);
        let outcomes = rig.controller.outcomes(2).await;
        let succeeded = outcomes
            .iter()
            .filter(|it| it.1 == Outcome::Success { result: None });
        assert_eq!(succeeded.count(), 2);
        let controller = rig.controller.clone();
        rig.drain().await;
        let state = controller.state();
        let heartbeats = |id| {
            let all = state.reports.iter().filter(|it| is_heartbeat(&it.1));
            all.filter(|it| number(it.1.id) == id).count()
        };
        let (usual, short) = (heartbeats(0), heartbeats(1));
        assert!((9..=13).contains(&short), "{short} of the short lease");
        assert!((9..=11).contains(&usual), "{usual} of the usual lease");
    }
}

#[tokio::test(start_paused = true)]
async fn f_041_without_heartbeats_expiry_fires_within_the_timeout() {
    let expired = Arc::new(Mutex::new(Vec::new()));
    let recorded = expired.clone();
    let begun = Instant::now();
    let rig = Rig::start(registry(move |task| {
        let recorded = recorded.clone();
        async move {
            tokio::time::sleep(ms(600)).await;
            assert!(!task.is_expired());
            task.expired().await;
            assert!(task.is_expired());
            recorded.lock().unwrap().push(begun.elapsed());
            Ok(Success::default())
        }
    }));
    rig.controller.push([times(1_000, 1_000)]);
    rig.controller
        .reported(2, |it| matches!(it, Action::Heartbeat))
        .await;
    assert_near(begun.elapsed(), 500);
    // No further heartbeat is answered.
    rig.controller.state().report_takes = ms(1_000_000);
    while rig.executor.counts().running > 0 {
        tokio::time::sleep(ms(10)).await;
    }
    assert_near(expired.lock().unwrap()[0], 1_250);
    rig.controller.state().report_takes = Duration::ZERO;
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_048_without_an_increment_heartbeats_are_answered_but_do_not_extend_the_lease() {
    let begun = Instant::now();
    let rig = Rig::start(registry(|task| async move {
        loop {
            tokio::time::sleep(ms(50)).await;
            if task.is_expired() {
                return Err("over".into());
            }
            task.heartbeat().await?;
        }
    }));
    rig.controller.push([times(2_000, 0)]);
    let outcome = rig.controller.outcome().await;
    assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
    assert!((ms(1_850)..ms(2_000)).contains(&begun.elapsed()));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_26_a_run_timeout_stops_a_run_that_is_heartbeaten_and_ignores_its_stop_signal() {
    let (registry, stop) = waiting(false);
    let rig = Rig::start(registry);
    let begun = Instant::now();
    rig.controller.push([Assignment {
        run_timeout: Some(ms(20_000)),
        ..task(1)
    }]);
    let outcome = rig.controller.outcome().await;
    assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
    let (reason, at) = stop.lock().unwrap().unwrap();
    assert_eq!(reason, StopReason::Timeout);
    assert_eq!(at, ms(20_000));
    // The kill grace is five seconds, but the lease lasts only for the grace after the run timeout.
    let grace = Policy::RUN_GRACE;
    let end = ms(20_000) + grace / 2;
    assert!((end..end + grace / 4).contains(&begun.elapsed()));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_080_a_lost_run_stops_within_one_heartbeat_interval_and_reports_nothing() {
    let (registry, stop) = waiting(true);
    let rig = Rig::start(registry);
    rig.controller
        .answer(|report| if is_heartbeat(report) { lost() } else { ok() });
    rig.controller.push([task(1)]);

    rig.controller
        .reported(1, |it| matches!(it, Action::Heartbeat))
        .await;
    while rig.executor.counts().running > 0 {
        tokio::time::sleep(ms(10)).await;
    }
    let (reason, at) = stop.lock().unwrap().unwrap();
    assert_eq!(reason, StopReason::Lost);
    assert!(at <= ms(2_010), "{at:?}");
    let controller = rig.controller.clone();
    rig.drain().await;
    assert_eq!(controller.actions(), [Action::Start, Action::Heartbeat]);
}

#[tokio::test(start_paused = true)]
async fn f_149_three_failed_heartbeats_end_the_run_before_its_lease_ends() {
    let (registry, stop) = waiting(false);
    let rig = Rig::start(registry);
    let heartbeats = Arc::new(AtomicU32::new(0));
    let sent = heartbeats.clone();
    rig.controller.answer(move |report| {
        if is_heartbeat(report) {
            sent.fetch_add(1, Ordering::SeqCst);
            return unavailable();
        }
        ok()
    });
    let begun = Instant::now();
    // The lease is so long that the failed heartbeats stop the run first.
    rig.controller.push([times(60_000, 60_000)]);
    let outcome = rig.controller.outcome().await;
    assert_eq!(heartbeats.load(Ordering::SeqCst), 3);
    let (reason, at) = stop.lock().unwrap().unwrap();
    assert_eq!(reason, StopReason::Expired);
    assert_near(at, 6_000);
    assert_near(begun.elapsed(), 11_000);
    let lost = RetryClass::WorkerLost;
    assert!(matches!(outcome, Outcome::Retriable { class, .. } if class == lost));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_149_a_store_that_does_not_answer_ends_the_run_before_its_lease_ends() {
    let (registry, stop) = waiting(false);
    let rig = Rig::start(registry);
    rig.controller.push([task(1)]);
    rig.controller
        .reported(1, |it| matches!(it, Action::Start))
        .await;
    let begun = Instant::now();
    rig.controller.state().report_takes = ms(1_000_000);
    while rig.executor.counts().running > 0 {
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(stop.lock().unwrap().unwrap().0, StopReason::Expired);
    assert!(begun.elapsed() < ms(8_000), "{:?}", begun.elapsed());
    rig.controller.state().report_takes = Duration::ZERO;
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn g_08_a_requested_cancellation_stops_the_run_and_is_reported_as_such() {
    for obeys in [true, false] {
        let (registry, stop) = waiting(obeys);
        let rig = Rig::start(registry);
        rig.controller.answer(|report| {
            Ok(ReportAck {
                cancel_requested: is_heartbeat(report),
                ..ok()?
            })
        });
        let begun = Instant::now();
        rig.controller.push([task(1)]);
        assert_eq!(rig.controller.outcome().await, Outcome::Cancelled);
        let (reason, at) = stop.lock().unwrap().unwrap();
        assert_eq!(reason, StopReason::Cancelled);
        assert_near(at, 2_000);
        // A handler that ignores its stop signal is dropped after the kill grace.
        assert_near(begun.elapsed(), if obeys { 2_000 } else { 7_000 });
        rig.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_returned_by_the_store_counts() {
    let (registry, stop) = waiting(true);
    let rig = Rig::with(|config| config.heartbeat_interval = ms(600_000), registry);
    rig.controller.answer(|_| {
        Ok(ReportAck {
            lease: Some(ms(9_000)),
            ..ok()?
        })
    });
    // The returned lease ends before the first heartbeat is due.
    rig.controller.push([times(40_000, 40_000)]);
    rig.controller.outcome().await;
    assert_near(stop.lock().unwrap().unwrap().1, 4_000);
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_too_long_for_a_slot_are_abandoned_without_a_start() {
    let rig = Rig::prepared(
        |config| config.concurrency = 10,
        registry(|task| async move {
            if number(task.id()) >= 2_000 {
                tokio::time::sleep(ms(60_000)).await;
            }
            Ok(Success::default())
        }),
        // The first handlers are fast, so that much is claimed ahead.
        |controller| {
            controller.state().poll_takes = ms(1);
            controller.push((0..2_100).map(task));
        },
    );
    let begun = Instant::now();
    let abandoned = rig.controller.reported(20, is_abandon).await;
    assert!((ms(7_400)..ms(10_000)).contains(&begun.elapsed()));
    assert!(abandoned.iter().all(|it| number(it.id) >= 2_010));
    let started = rig.executor.counts().started;
    assert_eq!(started, 2_010, "an abandoned claim never began");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_blocks_its_thread_can_check_its_stop() {
    let expired = Arc::new(AtomicBool::new(false));
    let recorded = expired.clone();
    let rig = Rig::start(registry(move |task| {
        let recorded = recorded.clone();
        async move {
            // No other code checks the lease while the handler computes.
            tokio::time::advance(ms(9_000)).await;
            recorded.store(task.is_expired(), Ordering::SeqCst);
            Ok(Success::default())
        }
    }));
    rig.controller.push([task(1)]);
    rig.controller.reported(1, is_finish).await;
    assert!(expired.load(Ordering::SeqCst));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_try_whose_run_timeout_ends_before_its_start_is_durable_has_used_its_try() {
    for run_timeout in [1, 50] {
        let rig = Rig::start(registry(|_| async { panic!("must not run") }));
        rig.controller.state().report_takes = ms(60);
        rig.controller.push([Assignment {
            run_timeout: Some(ms(run_timeout)),
            start_first: true,
            ..task(1)
        }]);
        let outcome = rig.controller.outcome().await;
        assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
        let controller = rig.controller.clone();
        rig.drain().await;
        let finish = Action::Finish {
            started_at: None,
            outcome,
        };
        assert_eq!(controller.actions(), [Action::Start, finish]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_last_try_whose_lease_ends_before_its_start_is_durable_is_abandoned_and_not_failed() {
    let rig = Rig::start(registry(|_| async { panic!("must not run") }));
    rig.controller.state().report_takes = ms(2_000);
    rig.controller.push([Assignment {
        heartbeat_timeout: ms(1_000),
        heartbeat_increment: ms(1_000),
        start_first: true,
        ..task(1)
    }]);
    rig.controller.reported(1, is_abandon).await;
    let controller = rig.controller.clone();
    rig.drain().await;
    assert_eq!(controller.actions(), [Action::Start, Action::Abandon]);
}

#[tokio::test(start_paused = true)]
async fn very_short_run_timeouts_end_in_a_timeout() {
    // A status controller of an older version gives no grace.
    for (limit, grace) in [1, 5, 20, 50]
        .into_iter()
        .flat_map(|limit| [(limit, ms(0)), (limit, Policy::RUN_GRACE)])
    {
        let (registry, stop) = waiting(true);
        let rig = Rig::start(registry);
        rig.controller.answer(move |_| {
            Ok(ReportAck {
                lease: Some(ms(limit) + grace),
                ..ok()?
            })
        });
        rig.controller.push([Assignment {
            run_timeout: Some(ms(limit)),
            ..task(1)
        }]);
        let outcome = rig.controller.outcome().await;
        assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
        assert_eq!(stop.lock().unwrap().unwrap().0, StopReason::Timeout);
        rig.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_poll_beyond_its_wait_counts_as_age_of_the_claim() {
    // The claim timeout is ten seconds, and a run may begin within three quarters of that.
    for (takes, is_run) in [(8_000, true), (9_000, false)] {
        let rig = Rig::prepared(
            |config| config.poll_wait = ms(1_000),
            registry(|_| async { Ok(Success::default()) }),
            |controller| {
                controller.state().poll_takes = ms(takes);
                controller.push([task(1)]);
            },
        );
        let reports = rig.controller.reported(1, |_| true).await;
        assert_eq!(is_finish(&reports[0].action), is_run, "{reports:?}");
        assert_eq!(is_abandon(&reports[0].action), !is_run, "{reports:?}");
        rig.stop().await;
    }
}
