//! How much runs at the same time, and how much is polled for.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use dueline_api::Assignment;
use dueline_domain::Weight;
use dueline_executor::{BuiltIn, Counts, Registry, handler_fn};
use tokio::time::Instant;

use crate::fake::{built_in, is_abandon, ms, number, task};
use crate::rig::Rig;

/// A registry whose handler sleeps for `takes` milliseconds, and the largest number of simultaneous runs.
fn sleeping(takes: impl Fn(u16) -> u64 + Send + Sync + 'static) -> (Registry, Arc<AtomicUsize>) {
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let measured = most.clone();
    let handler = handler_fn(move |task| {
        let (now, most, takes) = (now.clone(), most.clone(), takes(number(task.id())));
        async move {
            let running = now.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(running, Ordering::SeqCst);
            tokio::time::sleep(ms(takes)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    (
        Registry::builder().job("job", handler).build().unwrap(),
        measured,
    )
}

#[tokio::test(start_paused = true)]
async fn f_032_ten_tasks_on_five_slots_run_five_at_a_time() {
    let (registry, most) = sleeping(|_| 100);
    let rig = Rig::with(|config| config.concurrency = 5, registry);
    rig.controller.push((0..10).map(task));
    rig.controller.outcomes(10).await;
    assert_eq!(most.load(Ordering::SeqCst), 5);
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_033_with_a_minimum_tasks_are_polled_for_in_batches() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let (begun, recorded) = (Instant::now(), starts.clone());
    let handler = handler_fn(move |task| {
        recorded.lock().unwrap().push(begun.elapsed().as_millis());
        async move {
            tokio::time::sleep(ms(100 * (u64::from(number(task.id())) + 1))).await;
            Ok(())
        }
    });
    let registry = Registry::builder().job("job", handler).build().unwrap();
    let rig = Rig::with(
        |config| {
            config.concurrency = 10;
            config.concurrency_min = Some(6);
        },
        registry,
    );
    rig.controller.push((0..20).map(task));
    rig.controller.outcomes(20).await;
    // Ten at once; five when the first five have ended; five more when again only five remain.
    let starts = starts.lock().unwrap().clone();
    let batches = [0, 500, 1_000].map(|at: u128| {
        let near = |start: &&u128| start.abs_diff(at) < 20;
        starts.iter().filter(near).count()
    });
    assert_eq!(batches, [10, 5, 5], "{starts:?}");
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_034_weight_counts_against_the_concurrency() {
    let (registry, most) = sleeping(|_| 100);
    let rig = Rig::with(|config| config.concurrency = 10, registry);
    rig.controller.push((0..10).map(|number| Assignment {
        weight: Weight::new(3).unwrap(),
        ..task(number)
    }));
    rig.controller.outcomes(10).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    let polls = rig.controller.state().polls.clone();
    assert!(polls.iter().all(|poll| poll.task_weight_max == 10));
    let executor = rig.executor.clone();
    rig.drain().await;
    let counts = Counts {
        started: 10,
        finished: 10,
        running: 0,
    };
    assert_eq!(executor.counts(), counts);
}

#[tokio::test(start_paused = true)]
async fn f_034_a_task_heavier_than_the_free_weight_does_not_wait_for_a_whole_poll() {
    let (registry, _) = sleeping(|number| if number < 10 { 5_000 } else { 10 });
    let rig = Rig::with(|config| config.concurrency = 10, registry);
    let begun = Instant::now();
    rig.controller.push((0..9).map(task));
    rig.controller
        .until("nine runs", |it| (it.dispatched == 9).then_some(()))
        .await;
    rig.controller.push([Assignment {
        weight: Weight::new(10).unwrap(),
        ..task(10)
    }]);
    rig.controller.outcomes(10).await;
    assert!(begun.elapsed() < ms(6_100), "{:?}", begun.elapsed());
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_heavier_than_the_executor_is_abandoned() {
    let (registry, _) = sleeping(|_| 1);
    let rig = Rig::prepared(
        |config| config.concurrency = 2,
        registry,
        |controller| controller.state().ignores_weight = true,
    );
    let heavy = Assignment {
        weight: Weight::new(3).unwrap(),
        ..task(1)
    };
    rig.controller.push([heavy, task(2)]);
    let abandoned = rig.controller.reported(1, is_abandon).await;
    assert_eq!(number(abandoned[0].id), 1);
    assert_eq!(number(rig.controller.outcomes(1).await[0].0), 2);
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn f_033_slow_handlers_claim_nothing_ahead() {
    let (registry, _) = sleeping(|_| 1_000);
    let rig = Rig::with(|config| config.concurrency = 4, registry);
    rig.controller.push((0..40).map(task));
    for done in 0..10 {
        rig.controller.outcomes(done * 4).await;
        let dispatched = rig.controller.state().dispatched;
        assert!(
            dispatched <= done * 4 + 8,
            "{dispatched} claimed after {done} rounds"
        );
    }
    rig.controller.outcomes(40).await;
    let polls = rig.controller.state().polls.clone();
    assert!(polls.iter().all(|poll| poll.tasks_max <= 4), "{polls:?}");
    rig.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noop_tasks_are_claimed_ahead_and_each_is_one_report() {
    let noop = BuiltIn {
        noop: true,
        ..BuiltIn::default()
    };
    let rig = Rig::with(|config| config.concurrency = 10, Registry::built_in(noop));
    let tasks = (0..20_000).map(|number| Assignment {
        id: task(number).id,
        ..built_in("noop", "{}", "")
    });
    rig.controller.push(tasks);
    let executor = rig.executor.clone();
    let controller = rig.controller.clone();
    rig.controller.outcomes(20_000).await;
    rig.drain().await;
    let state = controller.state();
    assert_eq!(state.reports.len(), 20_000);
    let most = state.polls.iter().map(|poll| poll.tasks_max).max();
    assert!(most > Some(30), "the largest poll was for {most:?}");
    assert_eq!(executor.counts().finished, 20_000);
}

#[tokio::test(start_paused = true)]
async fn no_poll_is_sent_before_the_worker_is_registered() {
    let (registry, _) = sleeping(|_| 1);
    let rig = Rig::prepared(
        |_| {},
        registry,
        |controller| controller.state().registration_failures = 3,
    );
    rig.controller.push([task(1)]);
    rig.controller.outcomes(1).await;
    {
        let state = rig.controller.state();
        assert_eq!(state.registrations.len(), 4);
        let (registered, poll) = (&state.registrations[0], &state.polls[0]);
        assert_eq!(registered.worker.as_str(), "worker@0000000000000007");
        assert_eq!(registered.worker, poll.worker);
        assert_eq!(registered.jobs, poll.jobs);
        assert_eq!((registered.concurrency, registered.embedded), (16, false));
    }
    rig.drain().await;
}
