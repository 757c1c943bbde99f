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
    fake::{FakeWork, is_abandon, is_finish, ms, task},
    rig::{Rig, executor},
    runs::registry,
};

#[tokio::test(start_paused = true)]
async fn f_146_running_tasks_end_nothing_new_begins_and_the_worker_leaves() {
    let rig = Rig::with(
        |config| config.concurrency = 5,
        registry(|_| async {
            tokio::time::sleep(ms(3_000)).await;
            Ok(Success::default())
        }),
    );
    rig.work.push((0..5).map(task));
    rig.work.reported(5, |it| *it == Action::Start).await;
    rig.work.push((5..10).map(task));
    rig.shutdown.stop_intake();
    let (work, executor) = (rig.work.clone(), rig.executor.clone());
    rig.ended().await.unwrap();
    assert_eq!(executor.counts().started, 5);
    assert_eq!(executor.counts().finished, 5);
    let state = work.state();
    assert_eq!((state.given, state.queue.len()), (5, 5));
    assert_eq!(state.left.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f_146_past_the_limit_runs_are_stopped_and_given_back() {
    let dropped = Arc::new(AtomicU32::new(0));
    let seen = dropped.clone();
    let rig = Rig::start(registry(move |task| {
        let seen = seen.clone();
        async move {
            task.stopped().await;
            if task.input().is_empty() {
                // One that does not listen.
                std::future::pending::<()>().await;
            }
            seen.fetch_add(1, Ordering::SeqCst);
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
        rig.work.push([task]);
    }
    rig.work.reported(3, |it| *it == Action::Start).await;
    let begun = Instant::now();
    rig.shutdown.stop_work();
    let work = rig.work.clone();
    rig.ended().await.unwrap();
    assert!((ms(5_000)..ms(5_100)).contains(&begun.elapsed()));
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    let actions = work.actions();
    assert_eq!(actions.iter().filter(|it| is_abandon(it)).count(), 2);
    let ended = actions.iter().filter(|it| is_finish(it));
    let outcomes: Vec<_> = ended.collect();
    assert!(matches!(
        outcomes[..],
        [Action::Finish {
            outcome: Outcome::Success { .. },
            ..
        }]
    ));
    assert_eq!(work.state().left.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f_146_claims_that_have_not_begun_are_given_back_at_once() {
    let rig = Rig::prepared(
        |config| config.concurrency = 10,
        registry(|task| async move {
            if crate::fake::number(task.id()) >= 2_000 {
                tokio::time::sleep(ms(4_000)).await;
            }
            Ok(Success::default())
        }),
        |work| {
            work.state().next_takes = ms(1);
            work.push((0..2_100).map(task));
        },
    );
    let given = |state: &crate::fake::State| (state.given == 2_100).then_some(());
    rig.work.outcomes(2_000).await;
    rig.work.until("all to be claimed", given).await;
    let begun = Instant::now();
    rig.shutdown.stop_intake();
    rig.work.reported(90, is_abandon).await;
    assert!(begun.elapsed() < ms(10));
    let (work, executor) = (rig.work.clone(), rig.executor.clone());
    rig.ended().await.unwrap();
    assert_eq!(executor.counts().finished, 2_010);
    let back = work.actions().iter().filter(|it| is_abandon(it)).count();
    assert_eq!(back, 90);
}

#[tokio::test(start_paused = true)]
async fn the_last_outcomes_are_durable_before_the_worker_leaves() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.work.state().report_takes = ms(1_000);
    rig.work.push((0..50).map(task));
    rig.work
        .until("all to be claimed", |it| (it.given == 50).then_some(()))
        .await;
    let executor = rig.executor.clone();
    rig.drain().await;
    let counts = executor.counts();
    assert_eq!(counts.finished, counts.started);
    assert!(counts.started > 0);
}

#[tokio::test(start_paused = true)]
async fn an_executor_runs_only_once() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.work.push([task(1)]);
    rig.work.outcome().await;
    let again = dueline_executor::run(rig.executor.clone(), rig.shutdown.clone());
    assert!(again.await.is_err());
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_executor_stops_its_runs() {
    struct OnDrop(Arc<AtomicU32>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicU32::new(0));
    let seen = dropped.clone();
    let handler = handler_fn(move |_| {
        let guard = OnDrop(seen.clone());
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            Ok(())
        }
    });
    let registry = Registry::builder().job("job", handler).build().unwrap();
    let work = FakeWork::new();
    let executor = executor(|_| {}, registry, work.clone());
    work.push([task(1)]);
    let running = dueline_executor::run(executor.clone(), Shutdown::new());
    tokio::select! {
        biased;
        _ = running => panic!("nobody has stopped it"),
        _ = work.reported(1, |it| *it == Action::Start) => {}
    }
    let begun = Instant::now();
    while dropped.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(ms(10)).await;
    }
    assert!(begun.elapsed() < ms(5_100));
}
