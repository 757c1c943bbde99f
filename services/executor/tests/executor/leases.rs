//! Runs end before their lease does, and when they are told to.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use dueline_api::{Action, Assignment, Report, Reported};
use dueline_domain::{Outcome, RetryClass};
use dueline_executor::{Registry, StopReason, Success};
use tokio::time::Instant;

use crate::{
    fake::{away, error_of, is_abandon, is_finish, lost, ms, number, ok, task},
    rig::Rig,
    runs::registry,
};

/// Why and when a run was stopped.
type Stopped = Arc<Mutex<Option<(StopReason, Duration)>>>;

/// A handler that waits for its stop, and then obeys or does not.
fn waiting(is_obedient: bool) -> (Registry, Stopped) {
    let stopped = Stopped::default();
    let seen = stopped.clone();
    let registry = registry(move |task| {
        let seen = seen.clone();
        async move {
            let begun = Instant::now();
            let reason = task.stopped().await;
            *seen.lock().unwrap() = Some((reason, begun.elapsed()));
            if !is_obedient {
                std::future::pending::<()>().await;
            }
            Err("stopped".into())
        }
    });
    (registry, stopped)
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
async fn f_046_heartbeats_of_its_own_keep_a_run_alive() {
    let rig = Rig::start(registry(|task| async move {
        for _ in 0..10 {
            tokio::time::sleep(ms(500)).await;
            task.heartbeat().await?;
        }
        assert!(!task.is_expired());
        Ok(Success::default())
    }));
    rig.work.push([times(1_000, 1_000)]);
    let ended = rig.work.outcome().await;
    assert_eq!(ended, Outcome::Success { result: None });
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_046_the_executor_keeps_long_runs_alive_with_one_batch_per_interval() {
    let rig = Rig::start(registry(|_| async {
        tokio::time::sleep(ms(61_000)).await;
        Ok(Success::default())
    }));
    rig.work.push((0..10).map(task));
    let outcomes = rig.work.outcomes(10).await;
    assert!(
        outcomes
            .iter()
            .all(|it| matches!(it.1, Outcome::Success { .. }))
    );
    let work = rig.work.clone();
    rig.drain().await;
    let state = work.state();
    let beats = state.reports.iter().filter(|it| is_heartbeat(&it.1));
    let beats = beats.count();
    assert!((280..=310).contains(&beats), "{beats} heartbeats");
    assert!(state.batches.len() < 40, "{} calls", state.batches.len());
}

#[tokio::test(start_paused = true)]
async fn f_046_a_lease_shorter_than_the_interval_is_kept_by_heartbeats_of_its_own_pace() {
    for (timeout, increment) in [(1_000, 1_000), (8_000, 1_000)] {
        let rig = Rig::start(registry(|task| async move {
            let is_short = number(task.id()) > 0;
            tokio::time::sleep(ms(if is_short { 3_000 } else { 20_000 })).await;
            assert!(!task.is_expired());
            Ok(Success::default())
        }));
        // One with the usual lease is there already, and does not keep the short one waiting.
        rig.work.push([task(0)]);
        tokio::time::sleep(ms(2_500)).await;
        rig.work.push([Assignment {
            heartbeat_timeout: ms(timeout),
            heartbeat_increment: ms(increment),
            ..task(1)
        }]);
        let outcomes = rig.work.outcomes(2).await;
        let succeeded = outcomes
            .iter()
            .filter(|it| it.1 == Outcome::Success { result: None });
        assert_eq!(succeeded.count(), 2);
        let work = rig.work.clone();
        rig.drain().await;
        let state = work.state();
        let beats = |id| {
            let beats = state.reports.iter().filter(|it| is_heartbeat(&it.1));
            beats.filter(|it| number(it.1.id) == id).count()
        };
        assert!((9..=13).contains(&beats(1)), "{} short beats", beats(1));
        assert!((9..=11).contains(&beats(0)), "{} usual beats", beats(0));
    }
}

#[tokio::test(start_paused = true)]
async fn f_041_without_heartbeats_expiry_fires_within_the_timeout() {
    let expired = Arc::new(Mutex::new(Vec::new()));
    let seen = expired.clone();
    let begun = Instant::now();
    let rig = Rig::start(registry(move |task| {
        let seen = seen.clone();
        async move {
            tokio::time::sleep(ms(600)).await;
            assert!(!task.is_expired());
            task.expired().await;
            assert!(task.is_expired());
            seen.lock().unwrap().push(begun.elapsed());
            Ok(Success::default())
        }
    }));
    rig.work.push([times(1_000, 1_000)]);
    rig.work
        .reported(2, |it| matches!(it, Action::Heartbeat))
        .await;
    assert_near(begun.elapsed(), 500);
    // No further one is answered.
    rig.work.state().report_takes = ms(1_000_000);
    while rig.executor.counts().running > 0 {
        tokio::time::sleep(ms(10)).await;
    }
    assert_near(expired.lock().unwrap()[0], 1_250);
    rig.work.state().report_takes = Duration::ZERO;
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_048_without_an_increment_heartbeats_are_answered_but_do_not_help() {
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
    rig.work.push([times(2_000, 0)]);
    let outcome = rig.work.outcome().await;
    assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
    assert!((ms(1_850)..ms(2_000)).contains(&begun.elapsed()));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_timeout_stops_a_run_that_heartbeats_and_does_not_listen() {
    let (registry, stopped) = waiting(false);
    let rig = Rig::start(registry);
    let begun = Instant::now();
    rig.work.push([Assignment {
        run_timeout: Some(ms(20_000)),
        ..task(1)
    }]);
    let outcome = rig.work.outcome().await;
    assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
    let (reason, at) = stopped.lock().unwrap().unwrap();
    assert_eq!(reason, StopReason::Timeout);
    assert_eq!(at, ms(19_900));
    // The grace was five seconds, but the lease had only a tenth of one left.
    assert!((ms(19_940)..ms(20_000)).contains(&begun.elapsed()));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_080_a_lost_run_stops_within_one_heartbeat_interval_and_reports_nothing() {
    let (registry, stopped) = waiting(true);
    let rig = Rig::start(registry);
    rig.work
        .answer(|report| if is_heartbeat(report) { lost() } else { ok() });
    rig.work.push([task(1)]);
    let asked = |rig: &Rig| rig.executor.counts();
    rig.work
        .reported(1, |it| matches!(it, Action::Heartbeat))
        .await;
    while asked(&rig).running > 0 {
        tokio::time::sleep(ms(10)).await;
    }
    let (reason, at) = stopped.lock().unwrap().unwrap();
    assert_eq!(reason, StopReason::Lost);
    assert!(at <= ms(2_010), "{at:?}");
    let work = rig.work.clone();
    rig.drain().await;
    assert_eq!(work.actions(), [Action::Start, Action::Heartbeat]);
}

#[tokio::test(start_paused = true)]
async fn f_149_three_failed_heartbeats_end_the_run_before_its_lease_does() {
    let (registry, stopped) = waiting(false);
    let rig = Rig::start(registry);
    let beats = Arc::new(AtomicU32::new(0));
    let sent = beats.clone();
    rig.work.answer(move |report| {
        if is_heartbeat(report) {
            sent.fetch_add(1, Ordering::SeqCst);
            return away();
        }
        ok()
    });
    let begun = Instant::now();
    // A lease long enough that the count is what ends it.
    rig.work.push([times(60_000, 60_000)]);
    let outcome = rig.work.outcome().await;
    assert_eq!(beats.load(Ordering::SeqCst), 3);
    let (reason, at) = stopped.lock().unwrap().unwrap();
    assert_eq!(reason, StopReason::Expired);
    assert_near(at, 6_000);
    assert_near(begun.elapsed(), 11_000);
    let lost = RetryClass::WorkerLost;
    assert!(matches!(outcome, Outcome::Retriable { class, .. } if class == lost));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_149_a_silent_store_ends_the_run_before_its_lease_does() {
    let (registry, stopped) = waiting(false);
    let rig = Rig::start(registry);
    rig.work.push([task(1)]);
    rig.work.reported(1, |it| matches!(it, Action::Start)).await;
    let begun = Instant::now();
    rig.work.state().report_takes = ms(1_000_000);
    while rig.executor.counts().running > 0 {
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(stopped.lock().unwrap().unwrap().0, StopReason::Expired);
    assert!(begun.elapsed() < ms(8_000), "{:?}", begun.elapsed());
    rig.work.state().report_takes = Duration::ZERO;
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn g_08_a_requested_cancel_stops_the_run_and_is_reported_as_such() {
    for is_obedient in [true, false] {
        let (registry, stopped) = waiting(is_obedient);
        let rig = Rig::start(registry);
        rig.work.answer(|report| {
            Ok(Reported {
                cancel_requested: is_heartbeat(report),
                ..ok()?
            })
        });
        let begun = Instant::now();
        rig.work.push([task(1)]);
        assert_eq!(rig.work.outcome().await, Outcome::Cancelled);
        let (reason, at) = stopped.lock().unwrap().unwrap();
        assert_eq!(reason, StopReason::Cancelled);
        assert_near(at, 2_000);
        // One that does not listen is dropped after its grace.
        assert_near(begun.elapsed(), if is_obedient { 2_000 } else { 7_000 });
        rig.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_told_by_the_store_is_believed() {
    let (registry, stopped) = waiting(true);
    let rig = Rig::with(|config| config.heartbeat_interval = ms(600_000), registry);
    rig.work.answer(|_| {
        Ok(Reported {
            lease: Some(ms(9_000)),
            ..ok()?
        })
    });
    // The lease told ends before the first heartbeat is due.
    rig.work.push([times(40_000, 40_000)]);
    rig.work.outcome().await;
    assert_near(stopped.lock().unwrap().unwrap().1, 4_000);
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_too_long_for_a_slot_are_given_back_without_a_start() {
    let rig = Rig::prepared(
        |config| config.concurrency = 10,
        registry(|task| async move {
            if number(task.id()) >= 2_000 {
                tokio::time::sleep(ms(60_000)).await;
            }
            Ok(Success::default())
        }),
        // Fast handlers at first, so that much is claimed ahead.
        |work| {
            work.state().next_takes = ms(1);
            work.push((0..2_100).map(task));
        },
    );
    let begun = Instant::now();
    let back = rig.work.reported(20, is_abandon).await;
    assert!((ms(7_400)..ms(10_000)).contains(&begun.elapsed()));
    assert!(back.iter().all(|it| number(it.id) >= 2_010));
    let started = rig.executor.counts().started;
    assert_eq!(started, 2_010, "a claim given back never began");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_keeps_its_thread_busy_sees_its_stop() {
    let seen = Arc::new(AtomicBool::new(false));
    let expired = seen.clone();
    let rig = Rig::start(registry(move |task| {
        let expired = expired.clone();
        async move {
            // Nobody but the handler itself looks at the clock while it computes.
            tokio::time::advance(ms(9_000)).await;
            expired.store(task.is_expired(), Ordering::SeqCst);
            Ok(Success::default())
        }
    }));
    rig.work.push([task(1)]);
    rig.work.reported(1, is_finish).await;
    assert!(seen.load(Ordering::SeqCst));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_try_whose_time_is_over_before_its_start_is_durable_has_had_its_try() {
    for run_timeout in [1, 50] {
        let rig = Rig::start(registry(|_| async { panic!("must not run") }));
        rig.work.state().report_takes = ms(60);
        rig.work.push([Assignment {
            run_timeout: Some(ms(run_timeout)),
            start_first: true,
            ..task(1)
        }]);
        let outcome = rig.work.outcome().await;
        assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
        let work = rig.work.clone();
        rig.drain().await;
        let started = None;
        let finish = Action::Finish {
            started_at: started,
            outcome,
        };
        assert_eq!(work.actions(), [Action::Start, finish]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_last_try_whose_lease_ends_before_its_start_is_durable_is_given_back_and_not_failed() {
    let rig = Rig::start(registry(|_| async { panic!("must not run") }));
    rig.work.state().report_takes = ms(2_000);
    rig.work.push([Assignment {
        heartbeat_timeout: ms(1_000),
        heartbeat_increment: ms(1_000),
        start_first: true,
        ..task(1)
    }]);
    let given_back = |action: &Action| matches!(action, Action::Abandon);
    rig.work.reported(1, given_back).await;
    let work = rig.work.clone();
    rig.drain().await;
    assert_eq!(work.actions(), [Action::Start, Action::Abandon]);
}

#[tokio::test(start_paused = true)]
async fn very_short_run_timeouts_end_in_a_timeout() {
    for limit in [1, 5, 20, 50] {
        let (registry, stopped) = waiting(true);
        let rig = Rig::start(registry);
        rig.work.answer(move |_| {
            Ok(Reported {
                lease: Some(ms(limit)),
                ..ok()?
            })
        });
        rig.work.push([Assignment {
            run_timeout: Some(ms(limit)),
            ..task(1)
        }]);
        let outcome = rig.work.outcome().await;
        assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
        assert_eq!(stopped.lock().unwrap().unwrap().0, StopReason::Timeout);
        rig.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn claims_grow_older_on_a_way_that_takes_longer_than_the_call_was_to_wait() {
    // Claims hold for ten seconds, and a run may begin within three quarters of that.
    for (takes, is_run) in [(8_000, true), (9_000, false)] {
        let rig = Rig::prepared(
            |config| config.poll_wait = ms(1_000),
            registry(|_| async { Ok(Success::default()) }),
            |work| {
                work.state().next_takes = ms(takes);
                work.push([task(1)]);
            },
        );
        let reports = rig.work.reported(1, |_| true).await;
        assert_eq!(is_finish(&reports[0].action), is_run, "{reports:?}");
        assert_eq!(is_abandon(&reports[0].action), !is_run, "{reports:?}");
        rig.stop().await;
    }
}
