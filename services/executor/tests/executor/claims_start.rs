//! Runs that start with their claim, where writes are expensive.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use dueline_api::{Action, Assignment, PollRequest};
use dueline_domain::{Outcome, RetryClass, Weight};
use dueline_executor::{Config, Registry, StopReason, Success};
use tokio::time::Instant;

use crate::{
    fake::{FakeController, error_of, is_abandon, is_finish, ms, number, ok, task, unavailable},
    rig::Rig,
    runs::registry,
};

/// An executor whose controller starts runs with their claims.
fn rig(
    change: impl FnOnce(&mut Config),
    registry: Registry,
    prepare: impl FnOnce(&FakeController),
) -> Rig {
    Rig::prepared(change, registry, |controller| {
        controller.state().claims_start = true;
        prepare(controller);
    })
}

/// A registry whose runs take `millis`.
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

/// Why and when runs got their stop signals.
type Stops = Arc<Mutex<Vec<(StopReason, Instant)>>>;

/// A registry whose runs wait for their stop signals.
fn waiting() -> (Registry, Stops) {
    let stops = Stops::default();
    let recorded = stops.clone();
    let registry = registry(move |task| {
        let recorded = recorded.clone();
        async move {
            let reason = task.stopped().await;
            recorded.lock().unwrap().push((reason, Instant::now()));
            Err("stopped".into())
        }
    });
    (registry, stops)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_started_with_its_claim_reports_no_start() {
    let rig = rig(
        |_| {},
        sleeping(|number| [0, 5, 5_000][usize::from(number)]),
        |controller| controller.push((0..3).map(task)),
    );
    rig.controller.outcomes(3).await;
    let controller = rig.controller.clone();
    rig.drain().await;
    let mut finishes = 0;
    for action in controller.actions() {
        match action {
            Action::Finish { started_at, .. } => {
                assert_eq!(started_at, None, "the store has the time");
                finishes += 1;
            }
            Action::Heartbeat => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(finishes, 3);
    let state = controller.state();
    let beats = state
        .reports
        .iter()
        .filter(|(_, report)| report.action == Action::Heartbeat);
    assert!(beats.clone().all(|(_, report)| number(report.id) == 2));
    assert!((2..=3).contains(&beats.count()), "in five seconds");
}

#[tokio::test(start_paused = true)]
async fn no_task_is_polled_for_ahead_of_a_free_slot() {
    for claims_start in [true, false] {
        let rig = Rig::prepared(
            |config| config.concurrency = 4,
            sleeping(|_| 0),
            |controller| {
                controller.state().claims_start = claims_start;
                controller.state().poll_takes = ms(1);
                controller.push((0..3_000).map(task));
            },
        );
        rig.controller.outcomes(3_000).await;
        let controller = rig.controller.clone();
        rig.drain().await;
        let state = controller.state();
        let most = state.polls.iter().map(|poll| poll.weight_max).max();
        assert!(state.polls.iter().all(|poll| poll.start == claims_start));
        if claims_start {
            assert_eq!(most, Some(4));
        } else {
            assert!(most > Some(20), "fast handlers get more: {most:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_asks_for_the_free_weight() {
    let rig = rig(
        |config| config.concurrency = 10,
        sleeping(|_| 1_500),
        |controller| {
            controller.push([Assignment {
                weight: Weight::new(7).unwrap(),
                ..task(0)
            }]);
        },
    );
    let poll = |n: usize| move |state: &crate::fake::FakeState| state.polls.get(n).cloned();
    let first: PollRequest = rig.controller.until("a poll", poll(0)).await;
    assert_eq!((first.weight_max, first.tasks_max), (10, 10));
    let second: PollRequest = rig.controller.until("a second poll", poll(1)).await;
    assert_eq!((second.weight_max, second.start), (3, true));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_did_not_start_with_its_claim_reports_its_start() {
    let rig = Rig::start(sleeping(|_| 5));
    rig.controller.push([task(0)]);
    rig.controller.outcomes(1).await;
    let controller = rig.controller.clone();
    rig.drain().await;
    assert!(matches!(
        controller.actions()[..],
        [Action::Start, Action::Finish { .. }]
    ));
}

#[tokio::test(start_paused = true)]
async fn a_run_stops_before_its_lease_ends_however_long_the_answer_took() {
    for takes in [0, 3_000, 5_000] {
        let (registry, stops) = waiting();
        let rig = rig(
            |_| {},
            registry,
            |controller| controller.state().answer_takes = ms(takes),
        );
        // The poll has waited for a while when the task is claimed.
        tokio::time::sleep(ms(4_000)).await;
        rig.controller.answer(|report| match report.action {
            Action::Heartbeat => unavailable(),
            _ => ok(),
        });
        let claimed = Instant::now();
        rig.controller.push([task(1)]);
        let outcome = rig.controller.outcome().await;
        let lost = RetryClass::WorkerLost;
        assert!(matches!(outcome, Outcome::Retriable { class, .. } if class == lost));
        let (reason, at) = stops.lock().unwrap()[0];
        assert_eq!(reason, StopReason::Expired);
        let after = at - claimed;
        // The lease is eight seconds long, and all heartbeats fail.
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
        let (registry, stops) = waiting();
        let rig = rig(
            |_| {},
            registry,
            |controller| controller.state().answer_takes = ms(takes),
        );
        tokio::time::sleep(ms(500)).await;
        let claimed = Instant::now();
        rig.controller.push([Assignment {
            run_timeout: Some(ms(limit)),
            ..task(1)
        }]);
        let outcome = rig.controller.outcome().await;
        assert_eq!(error_of(&outcome), (false, "ran past its run timeout"));
        let (reason, at) = stops.lock().unwrap()[0];
        assert_eq!(reason, StopReason::Timeout);
        let after = at - claimed;
        assert!(
            (ms(limit - 5)..=ms(limit + 5)).contains(&after),
            "{after:?}"
        );
        rig.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_dispatched_too_late_is_abandoned_unless_a_fixed_limit_is_over() {
    let late = |task: Assignment| async {
        let never = registry(|_| async { panic!("must not run") });
        let rig = rig(
            |_| {},
            never,
            |controller| {
                controller.state().answer_takes = ms(7_000);
                controller.push([task]);
            },
        );
        tokio::time::sleep(ms(7_500)).await;
        let controller = rig.controller.clone();
        rig.drain().await;
        controller.actions()
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
        // Abandoned, the task might go round for ever, and no outcome would be true. The lease ends soon.
        assert_eq!(late(task).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn started_runs_that_cannot_begin_are_abandoned() {
    let rig = rig(
        |config| config.concurrency = 2,
        sleeping(|_| 1_000),
        |controller| {
            controller.state().ignores_weight = true;
            controller.push([Assignment {
                weight: Weight::new(3).unwrap(),
                ..task(9)
            }]);
        },
    );
    let abandoned = rig.controller.reported(1, is_abandon).await;
    assert_eq!(number(abandoned[0].id), 9);
    // At the shutdown, a task waits that the controller dispatched although its weight is not free.
    rig.controller.push([
        task(1),
        Assignment {
            weight: Weight::new(2).unwrap(),
            ..task(2)
        },
    ]);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(rig.controller.state().dispatched, 3);
    rig.shutdown.stop_intake();
    let abandoned = rig.controller.reported(2, is_abandon).await;
    assert_eq!(number(abandoned[1].id), 2);
    let controller = rig.controller.clone();
    rig.ended().await.unwrap();
    let finished = controller
        .actions()
        .iter()
        .filter(|it| is_finish(it))
        .count();
    assert_eq!(finished, 1, "the running task finished");
}
