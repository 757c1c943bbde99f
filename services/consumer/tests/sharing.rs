//! Several consumers on one store.

mod kit;

use dueline_consumer::{CONSUMER_KIND, Config, Sharing};
use dueline_domain::{Job, Quota, StateKind, WorkerId};
use dueline_ports::WorkerStore as _;
use dueline_runtime::Shutdown;
use kit::{Kit, START, definition, end, name, secs, success};
use tokio::time::sleep;

fn config(incarnation: u64) -> Config {
    Config {
        sharing: Some(Sharing {
            me: WorkerId::new("consumer", incarnation).unwrap(),
            interval: secs(2),
        }),
        ..Config::default()
    }
}

/// Submits one task per job, due in a second. All must be enqueued within 2 s and `late` more seconds.
async fn submit_and_wait(kit: &Kit, late: u64) {
    let due_in = kit.since_start() + secs(1);
    let mut tasks = Vec::new();
    for n in 0..30 {
        tasks.push(kit.submit(&format!("job-{n}"), due_in).await);
    }
    for task in &tasks {
        kit.wait_for_state(task, StateKind::Enqueued, secs(2 + late))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn consumers_share_the_work_and_take_over_from_a_consumer_that_is_gone() {
    let kit = Kit::new().await;
    for n in 0..30 {
        kit.put(definition(&format!("job-{n}"))).await;
    }
    let stops: Vec<Shutdown> = (1..=3).map(|n| kit.start_separate(config(n))).collect();
    // The consumers do not know each other yet, so each reads everything.
    submit_and_wait(&kit, 0).await;
    // The consumers know each other by now: each reads a part, together they read everything, and no task is late.
    sleep(secs(6)).await;
    kit.store.clear_shares();
    submit_and_wait(&kit, 0).await;
    let shares = kit.store.shares();
    assert!(shares.len() >= 6, "all of them scan every second");
    for n in 0..30 {
        let job = name(&format!("job-{n}"));
        let readers = shares.iter().filter(|share| match share {
            Some(share) => share.covers(&job, 0),
            None => true,
        });
        let count = readers.count();
        assert!(count > 0 && count < shares.len(), "{job} has {count}");
    }
    // One consumer deregisters; the others notice at their next heartbeat.
    stops[0].stop_intake();
    sleep(secs(3)).await;
    let left = kit.store.workers().await.unwrap();
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|record| &*record.kind == CONSUMER_KIND));
    submit_and_wait(&kit, 0).await;
    // One consumer dies without deregistering: the tasks in its share are late by three intervals at most.
    kit.store
        .fail_deregistration(&WorkerId::new("consumer", 2).unwrap());
    stops[1].stop_intake();
    submit_and_wait(&kit, 8).await;
    submit_and_wait(&kit, 0).await;
}

#[tokio::test(start_paused = true)]
async fn g_07_a_limit_on_running_tasks_holds_for_all_consumers_together() {
    let kit = Kit::new().await;
    let quota = Quota {
        running_max: Some(7),
        ..Quota::default()
    };
    kit.put(Job {
        quota,
        ..definition("a")
    })
    .await;
    let tasks = kit.submit_many("a", secs(0), 60).await;
    kit.submit_many("b", secs(0), 50).await;
    // None of them knows the others, so each reads all tasks.
    let stops: Vec<_> = (1..=4).map(|n| kit.start_separate(config(n))).collect();
    kit.run_until(secs(1)).await;
    assert_eq!(kit.count("b", StateKind::Enqueued).await, 50);
    let (mut ended, mut second) = (0, 1);
    while ended < tasks.len() {
        let mut enqueued = Vec::new();
        for task in &tasks {
            let task = kit.get(task).await;
            if task.kind() == StateKind::Enqueued {
                enqueued.push(task);
            }
        }
        assert_eq!(
            enqueued.len(),
            7.min(tasks.len() - ended),
            "in second {second}"
        );
        // The next ones follow within a second, without a signal from the process that ends these.
        for task in enqueued.iter().take(1 + ended % 7) {
            end(&kit, task, success()).await;
            ended += 1;
        }
        second += 1;
        kit.run_until(secs(second)).await;
    }
    stops.iter().for_each(Shutdown::stop_intake);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_126_a_quota_holds_for_all_consumers_together_and_over_their_restarts() {
    let kit = Kit::new().await;
    let quota = Quota {
        rate_per_s: Some(10.0),
        burst: Some(20),
        running_max: None,
    };
    kit.put(Job {
        quota,
        changed_at: START,
        ..definition("a")
    })
    .await;
    kit.submit_many("a", secs(0), 2_000).await;
    // None of them knows the others, so each reads all tasks.
    let start = || {
        (1..=4)
            .map(|n| kit.start_separate(config(n)))
            .collect::<Vec<_>>()
    };
    let mut stops = start();
    let (mut before, mut least) = (0, u64::MAX);
    for second in 1..=40 {
        kit.run_until(secs(second)).await;
        let enqueued = kit.count("a", StateKind::Enqueued).await;
        let burst = if second == 1 { 20 } else { 0 };
        let (now, most) = (enqueued - before, 11 + burst);
        assert!(now <= most, "{now} in second {second}");
        if second > 1 {
            least = least.min(now);
        }
        before = enqueued;
        if second % 10 == 0 {
            stops.drain(..).for_each(|stop| stop.stop_intake());
            stops = start();
        }
    }
    assert!((360..=420).contains(&before), "{before} in 40 s");
    assert!(least >= 5, "{least} in a second");
    stops.iter().for_each(Shutdown::stop_intake);
    kit.stop().await;
}
