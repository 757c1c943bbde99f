//! Runs that begin with their claim, where writes are dear.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use dueline_api::{Action, Assignment, NextWork};
use dueline_domain::{Outcome, RetryClass, Weight};
use dueline_executor::{Config, Registry, StopReason, Success};
use tokio::time::Instant;

use crate::{
    fake::{FakeWork, away, error_of, is_abandon, is_finish, ms, number, ok, task},
    rig::Rig,
    runs::registry,
};

/// An executor that is told that writes are dear.
fn rig(
    change: impl FnOnce(&mut Config),
    registry: Registry,
    prepare: impl FnOnce(&FakeWork),
) -> Rig {
    Rig::prepared(change, registry, |work| {
        work.state().claims_start = true;
        prepare(work);
    })
}

/// A registry whose runs take so long.
fn sleeping(millis: impl Fn(u16) -> u64 + Send + Sync + 'static) -> Registry {
    registry(move |task| {
        let takes = millis(number(task.id()));
        async move {
            if takes > 0 {
                tokio::time::sleep(ms(takes)).await;
            }
            Ok(Success::default())
        }
    })
}

/// Why and when runs were told to stop.
type Told = Arc<Mutex<Vec<(StopReason, Instant)>>>;

/// A registry whose runs wait for their stop.
fn told() -> (Registry, Told) {
    let told = Told::default();
    let seen = told.clone();
    let registry = registry(move |task| {
        let seen = seen.clone();
        async move {
            let reason = task.stopped().await;
            seen.lock().unwrap().push((reason, Instant::now()));
            Err("stopped".into())
        }
    });
    (registry, told)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_began_with_its_claim_reports_no_start() {
    let rig = rig(
        |_| {},
        sleeping(|number| [0, 5, 5_000][usize::from(number)]),
        |work| work.push((0..3).map(task)),
    );
    rig.work.outcomes(3).await;
    let work = rig.work.clone();
    rig.drain().await;
    let mut finishes = 0;
    for action in work.actions() {
        match action {
            Action::Finish { started_at, .. } => {
                assert_eq!(started_at, None, "the store knows when");
                finishes += 1;
            }
            Action::Heartbeat => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(finishes, 3);
    let state = work.state();
    let beats = state
        .reports
        .iter()
        .filter(|(_, report)| report.action == Action::Heartbeat);
    assert!(beats.clone().all(|(_, report)| number(report.id) == 2));
    assert!((2..=3).contains(&beats.count()), "in five seconds");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_ahead_of_a_free_slot() {
    for claims_start in [true, false] {
        let rig = Rig::prepared(
            |config| config.concurrency = 4,
            sleeping(|_| 0),
            |work| {
                work.state().claims_start = claims_start;
                work.state().next_takes = ms(1);
                work.push((0..3_000).map(task));
            },
        );
        rig.work.outcomes(3_000).await;
        let work = rig.work.clone();
        rig.drain().await;
        let state = work.state();
        let most = state.asks.iter().map(|ask| ask.weight_max).max().unwrap();
        assert!(state.asks.iter().all(|ask| ask.start == claims_start));
        if claims_start {
            assert_eq!(most, 4);
        } else {
            assert!(most > 20, "fast handlers get more: {most}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_is_what_is_free() {
    let rig = rig(
        |config| config.concurrency = 10,
        sleeping(|_| 1_500),
        |work| {
            work.push([Assignment {
                weight: Weight::new(7).unwrap(),
                ..task(0)
            }]);
        },
    );
    let ask = |n: usize| move |state: &crate::fake::State| state.asks.get(n).cloned();
    let first: NextWork = rig.work.until("a question", ask(0)).await;
    assert_eq!((first.weight_max, first.tasks_max), (10, 10));
    let second: NextWork = rig.work.until("another one", ask(1)).await;
    assert_eq!((second.weight_max, second.start), (3, true));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_claims_without_a_start_gets_one() {
    let rig = Rig::start(sleeping(|_| 5));
    rig.work.push([task(0)]);
    rig.work.outcomes(1).await;
    let work = rig.work.clone();
    rig.drain().await;
    assert!(matches!(
        work.actions()[..],
        [Action::Start, Action::Finish { .. }]
    ));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_over_before_its_lease_however_long_the_answer_took() {
    for takes in [0, 3_000, 5_000] {
        let (registry, told) = told();
        let rig = rig(
            |_| {},
            registry,
            |work| work.state().answer_takes = ms(takes),
        );
        // The question has waited for a while when the task is claimed.
        tokio::time::sleep(ms(4_000)).await;
        rig.work.answer(|report| match report.action {
            Action::Heartbeat => away(),
            _ => ok(),
        });
        let claimed = Instant::now();
        rig.work.push([task(1)]);
        let outcome = rig.work.outcome().await;
        let lost = RetryClass::WorkerLost;
        assert!(matches!(outcome, Outcome::Retriable { class, .. } if class == lost));
        let (reason, at) = told.lock().unwrap()[0];
        assert_eq!(reason, StopReason::Expired);
        let after = at - claimed;
        // The lease is eight seconds, and heartbeats fail from the first one on.
        assert!(
            (ms(5_990)..=ms(6_005)).contains(&after),
            "{takes}: {after:?}"
        );
        rig.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_run_timeout_counts_from_the_claim() {
    for (limit, takes) in [(3_000, 1_000), (20_000, 4_000)] {
        let (registry, told) = told();
        let rig = rig(
            |_| {},
            registry,
            |work| work.state().answer_takes = ms(takes),
        );
        tokio::time::sleep(ms(500)).await;
        let claimed = Instant::now();
        rig.work.push([Assignment {
            run_timeout: Some(ms(limit)),
            ..task(1)
        }]);
        let outcome = rig.work.outcome().await;
        assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
        let (reason, at) = told.lock().unwrap()[0];
        assert_eq!(reason, StopReason::Timeout);
        let after = at - claimed;
        assert!(
            (ms(limit - 105)..=ms(limit - 95)).contains(&after),
            "{after:?}"
        );
        rig.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_comes_too_late_is_given_back_and_one_past_a_fixed_limit_is_left_to_lapse() {
    let late = |task: Assignment| async {
        let never = registry(|_| async { panic!("must not run") });
        let rig = rig(
            |_| {},
            never,
            |work| {
                work.state().answer_takes = ms(7_000);
                work.push([task]);
            },
        );
        tokio::time::sleep(ms(7_500)).await;
        let work = rig.work.clone();
        rig.drain().await;
        work.actions()
    };
    assert_eq!(late(task(1)).await, [Action::Abandon]);
    let limited = Assignment {
        run_timeout: Some(ms(2_000)),
        ..task(1)
    };
    let fixed = Assignment {
        heartbeat_timeout: ms(2_000),
        heartbeat_increment: Duration::ZERO,
        ..task(1)
    };
    for task in [limited, fixed] {
        // Given back it would go round for ever, and an outcome would be a lie.
        assert_eq!(late(task).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_begin_is_given_back() {
    let rig = rig(
        |config| config.concurrency = 2,
        sleeping(|_| 1_000),
        |work| {
            work.state().is_careless = true;
            work.push([Assignment {
                weight: Weight::new(3).unwrap(),
                ..task(9)
            }]);
        },
    );
    let back = rig.work.reported(1, is_abandon).await;
    assert_eq!(number(back[0].id), 9);
    // A shutdown finds a task that a careless controller gave without room for it.
    rig.work.push([
        task(1),
        Assignment {
            weight: Weight::new(2).unwrap(),
            ..task(2)
        },
    ]);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(rig.work.state().given, 3);
    rig.shutdown.stop_intake();
    let back = rig.work.reported(2, is_abandon).await;
    assert_eq!(number(back[1].id), 2);
    let work = rig.work.clone();
    rig.ended().await.unwrap();
    let ended = work.actions().iter().filter(|it| is_finish(it)).count();
    assert_eq!(ended, 1, "what ran was finished");
}
