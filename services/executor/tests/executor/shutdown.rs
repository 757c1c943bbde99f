//! The two stages of a shutdown.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use dueline_api::Action;
use dueline_domain::Outcome;
use dueline_executor::{Registry, Success, handler_fn};
use dueline_runtime::Shutdown;
use tokio::time::Instant;

use crate::{
    fake::{FakeController, is_abandon, is_finish, ms, task},
    rig::{Rig, executor},
    runs::registry,
};

#[tokio::test(start_paused = true)]
async fn f_146_runs_in_progress_end_no_other_begins_and_the_worker_deregisters() {
    let rig = Rig::with(
        |config| config.concurrency = 5,
        registry(|_| async {
            tokio::time::sleep(ms(3_000)).await;
            Ok(Success::default())
        }),
    );
    rig.controller.push((0..5).map(task));
    rig.controller.reported(5, |it| *it == Action::Start).await;
    rig.controller.push((5..10).map(task));
    rig.shutdown.stop_intake();
    let (controller, executor) = (rig.controller.clone(), rig.executor.clone());
    rig.ended().await.unwrap();
    assert_eq!(executor.counts().started, 5);
    assert_eq!(executor.counts().finished, 5);
    let state = controller.state();
    assert_eq!((state.dispatched, state.queue.len()), (5, 5));
    assert_eq!(state.deregistered.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f_146_in_the_second_stage_runs_are_stopped_and_abandoned() {
    let returned = Arc::new(AtomicU32::new(0));
    let counter = returned.clone();
    let rig = Rig::start(registry(move |task| {
        let counter = counter.clone();
        async move {
            task.stopped().await;
            if task.input().is_empty() {
                // This handler ignores its stop signal.
                std::future::pending::<()>().await;
            }
            counter.fetch_add(1, Ordering::SeqCst);
            if task.input() == "fails" {
                return Err("because it was stopped".into());
            }
            Ok(Success::default())
        }
    }));
    let inputs = ["", "fails", "ends"];
    for (number, input) in (0..).zip(inputs) {
        let mut task = task(number);
        task.input = input.into();
        rig.controller.push([task]);
    }
    rig.controller.reported(3, |it| *it == Action::Start).await;
    let begun = Instant::now();
    rig.shutdown.stop_work();
    let controller = rig.controller.clone();
    rig.ended().await.unwrap();
    assert!((ms(5_000)..ms(5_100)).contains(&begun.elapsed()));
    assert_eq!(returned.load(Ordering::SeqCst), 2);
    let actions = controller.actions();
    assert_eq!(actions.iter().filter(|it| is_abandon(it)).count(), 2);
    let finishes: Vec<_> = actions.iter().filter(|it| is_finish(it)).collect();
    assert!(matches!(
        finishes[..],
        [Action::Finish {
            outcome: Outcome::Success { .. },
            ..
        }]
    ));
    assert_eq!(controller.state().deregistered.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f_146_claims_that_have_not_begun_are_abandoned_at_once() {
    let rig = Rig::prepared(
        |config| config.concurrency = 10,
        registry(|task| async move {
            if crate::fake::number(task.id()) >= 2_000 {
                tokio::time::sleep(ms(4_000)).await;
            }
            Ok(Success::default())
        }),
        |controller| {
            controller.state().poll_takes = ms(1);
            controller.push((0..2_100).map(task));
        },
    );
    let all = |state: &crate::fake::FakeState| (state.dispatched == 2_100).then_some(());
    rig.controller.outcomes(2_000).await;
    rig.controller.until("all to be claimed", all).await;
    let begun = Instant::now();
    rig.shutdown.stop_intake();
    rig.controller.reported(90, is_abandon).await;
    assert!(begun.elapsed() < ms(10));
    let (controller, executor) = (rig.controller.clone(), rig.executor.clone());
    rig.ended().await.unwrap();
    assert_eq!(executor.counts().finished, 2_010);
    let actions = controller.actions();
    assert_eq!(actions.iter().filter(|it| is_abandon(it)).count(), 90);
}

#[tokio::test(start_paused = true)]
async fn the_last_outcomes_are_durable_before_the_worker_deregisters() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.controller.state().report_takes = ms(1_000);
    rig.controller.push((0..50).map(task));
    rig.controller
        .until("all to be claimed", |it| {
            (it.dispatched == 50).then_some(())
        })
        .await;
    let executor = rig.executor.clone();
    rig.drain().await;
    let counts = executor.counts();
    assert_eq!(counts.finished, counts.started);
    assert!(counts.started > 0);
}

#[tokio::test(start_paused = true)]
async fn an_executor_cannot_run_twice() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.controller.push([task(1)]);
    rig.controller.outcome().await;
    let again = dueline_executor::run(rig.executor.clone(), rig.shutdown.clone());
    assert!(again.await.is_err());
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_executor_stops_its_runs() {
    struct CountOnDrop(Arc<AtomicU32>);
    impl Drop for CountOnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicU32::new(0));
    let counter = dropped.clone();
    let handler = handler_fn(move |_| {
        let guard = CountOnDrop(counter.clone());
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            Ok(())
        }
    });
    let registry = Registry::builder().job("job", handler).build().unwrap();
    let controller = FakeController::new();
    let executor = executor(|_| {}, registry, controller.clone());
    controller.push([task(1)]);
    let running = dueline_executor::run(executor.clone(), Shutdown::new());
    tokio::select! {
        biased;
        _ = running => panic!("the executor ended without a shutdown"),
        _ = controller.reported(1, |it| *it == Action::Start) => {}
    }
    let begun = Instant::now();
    while dropped.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(ms(10)).await;
    }
    assert!(begun.elapsed() < ms(5_100));
}
