//! Jobs whose fairness keys take turns, under paused time, with workers that run tasks for a while.

mod kit;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dueline_domain::{Due, FairShare, Job, NewTask, Policy, StateKind, Task, TaskOptions};
use dueline_ports::TaskStore as _;
use kit::{Kit, START, definition, ms, name, secs};
use tokio::{sync::Semaphore, task::JoinSet, time::sleep};

async fn fair_kit(running_max: Option<u32>) -> Arc<Kit> {
    let kit = Kit::new().await;
    kit.put(Job {
        fair_share: Some(FairShare { running_max }),
        ..definition("a")
    })
    .await;
    kit.start();
    Arc::new(kit)
}

fn keyed(kit: &Kit, key: &str) -> NewTask {
    let options = TaskOptions {
        fairness_key: Some(key.into()),
        ..TaskOptions::default()
    };
    NewTask {
        options: Some(Box::new(options)),
        ..kit.task("a", kit.since_start())
    }
}

async fn submit(kit: &Kit, key: &str, count: usize) -> Vec<Task> {
    let new = (0..count).map(|_| keyed(kit, key)).collect();
    let tasks = kit.store_all_as_enqueued(new).await;
    for task in &tasks {
        kit.due.announce(task.run_at);
    }
    tasks
}

/// Starts a worker with this many slots, which takes this long for each task.
fn work(kit: &Arc<Kit>, slots: usize, each: Duration) -> JoinSet<()> {
    let (kit, slots) = (kit.clone(), Arc::new(Semaphore::new(slots)));
    let mut worker = JoinSet::new();
    worker.spawn(async move {
        let mut runs = JoinSet::new();
        loop {
            let slot = slots.clone().acquire_owned().await.unwrap();
            let Some(message) = kit.receive_and_ack("a", secs(1)).await else {
                continue;
            };
            let kit = kit.clone();
            runs.spawn(async move {
                let task = kit.claim(&message, true).await;
                sleep(each).await;
                kit.succeed(&task).await;
                kit.due.place_freed(&name("a"));
                drop(slot);
            });
            while let Some(run) = runs.try_join_next() {
                run.unwrap();
            }
        }
    });
    worker
}

/// How many tasks of each key have ended.
async fn ended(kit: &Kit, tasks: &[Task]) -> BTreeMap<String, usize> {
    let mut ended = BTreeMap::new();
    for task in tasks {
        let task = kit.store.get(&task.job, &task.id).await.unwrap().unwrap();
        if task.kind() == StateKind::Succeeded {
            *ended.entry(task.lane_name().to_owned()).or_default() += 1;
        }
    }
    ended
}

async fn stop(kit: Arc<Kit>, mut worker: JoinSet<()>) {
    assert!(worker.try_join_next().is_none(), "the worker has failed");
    worker.shutdown().await;
    kit.shutdown.stop_intake();
}

/// The waits of tasks of a quiet key, one after the other, sorted.
async fn waits(kit: &Arc<Kit>, count: u64) -> Vec<Duration> {
    let mut waits = Vec::new();
    for number in 0..count {
        sleep(ms(170 + 13 * (number % 7))).await;
        let task = submit(kit, "quiet", 1).await.remove(0);
        let task = kit
            .wait_for_state(&task, StateKind::Processing, secs(60))
            .await;
        waits.push(task.started_at.unwrap().since(task.run_at));
    }
    waits.sort_unstable();
    waits
}

#[tokio::test(start_paused = true)]
async fn g_07_a_quiet_key_does_not_wait_behind_the_backlog_of_a_noisy_one() {
    let kit = fair_kit(None).await;
    let worker = work(&kit, 4, ms(100));
    let alone = waits(&kit, 40).await;
    submit(&kit, "noisy", 5_000).await;
    sleep(secs(5)).await;
    let beside = waits(&kit, 40).await;
    let p99 = |waits: &[Duration]| waits[waits.len() * 99 / 100];
    // Every slot is always busy, so the next one is free after a task's time at the latest; three tasks may be ahead.
    assert!(p99(&alone) <= ms(20), "{alone:?}");
    assert!(p99(&beside) <= ms(200), "{beside:?}");
    stop(kit, worker).await;
}

#[tokio::test(start_paused = true)]
async fn g_07_keys_share_the_workers_equally_and_leave_none_idle() {
    let kit = fair_kit(None).await;
    let mut tasks = submit(&kit, "a", 2_000).await;
    for key in ["b", "c", "d"] {
        tasks.extend(submit(&kit, key, 150).await);
    }
    let worker = work(&kit, 5, ms(50));
    sleep(secs(4)).await;
    let shares = ended(&kit, &tasks).await;
    // A hundred a second, and some at the beginning for which the consumer enqueues too few.
    let all: usize = shares.values().sum();
    assert!((380..=400).contains(&all), "{shares:?}");
    for (key, share) in &shares {
        assert!((90..=105).contains(share), "{key}: {shares:?}");
    }
    // When the others have ended, the one that is left has all workers.
    sleep(secs(5)).await;
    let shares = ended(&kit, &tasks).await;
    let all: usize = shares.values().sum();
    assert!(all >= 860, "{shares:?}");
    stop(kit, worker).await;
}

#[tokio::test(start_paused = true)]
async fn g_07_no_more_tasks_of_a_key_run_at_once_than_its_limit() {
    let kit = fair_kit(Some(2)).await;
    let mut tasks = submit(&kit, "noisy", 300).await;
    for key in ["b", "c"] {
        tasks.extend(submit(&kit, key, 40).await);
    }
    let worker = work(&kit, 10, ms(100));
    let mut most = BTreeMap::new();
    for _ in 0..200 {
        sleep(ms(17)).await;
        let mut running = BTreeMap::new();
        for task in &tasks {
            let task = kit.get(task).await;
            if task.kind().is_in_flight() {
                *running.entry(task.lane_name().to_owned()).or_insert(0) += 1;
            }
        }
        for (key, now) in running {
            let most = most.entry(key).or_insert(0);
            *most = now.max(*most);
        }
    }
    assert!(most.values().all(|most| *most == 2), "{most:?}");
    // 3.4 s: twenty tasks a second of each key.
    let shares = ended(&kit, &tasks).await;
    assert_eq!((shares["b"], shares["c"]), (40, 40), "{shares:?}");
    assert!((60..=68).contains(&shares["noisy"]), "{shares:?}");
    stop(kit, worker).await;
}

#[tokio::test(start_paused = true)]
async fn g_07_a_thousand_keys_take_turns_and_an_idle_job_causes_few_scans() {
    let kit = fair_kit(Some(1)).await;
    let mut tasks = Vec::new();
    for key in 0..1_000 {
        tasks.extend(submit(&kit, &format!("tenant {key:04}"), 3).await);
    }
    let worker = work(&kit, 50, ms(20));
    sleep(secs(2)).await;
    let mut left = tasks.len();
    for _ in 0..10 {
        left = tasks.len() - ended(&kit, &tasks).await.values().sum::<usize>();
        if left == 0 {
            break;
        }
        sleep(ms(200)).await;
    }
    assert_eq!(left, 0);
    let before = kit.store.scans();
    sleep(secs(20)).await;
    let scans = kit.store.scans() - before;
    assert!(scans <= 25, "{scans} scans in 20 s without a task");
    stop(kit, worker).await;
}

#[tokio::test(start_paused = true)]
async fn g_07_lanes_whose_tasks_are_due_later_hide_no_due_task() {
    let kit = fair_kit(None).await;
    let later = |number: usize| NewTask {
        due: Due::At(START.after(secs(3_600))),
        ..keyed(&kit, &format!("m later {number:03}"))
    };
    let new = (0..100).map(later).collect();
    kit.store_all_as_enqueued(new).await;
    let worker = work(&kit, 4, ms(20));
    // Before, between and behind them, again and again: the turn of each begins where the last one was.
    for _ in 0..3 {
        for key in ["a", "m later 050 and more", "z"] {
            let task = submit(&kit, key, 1).await.remove(0);
            kit.wait_for_state(&task, StateKind::Succeeded, secs(2))
                .await;
        }
    }
    let before = kit.store.scans();
    sleep(secs(20)).await;
    let scans = kit.store.scans() - before;
    assert!(scans <= 25, "{scans} scans in 20 s without a due task");
    stop(kit, worker).await;
}

#[tokio::test(start_paused = true)]
async fn g_07_many_full_lanes_cause_few_scans() {
    let kit = fair_kit(Some(1)).await;
    let policy = Policy {
        heartbeat_timeout: secs(7_200),
        ..Policy::default()
    };
    let running_max = Some(1);
    kit.put(Job {
        policy,
        fair_share: Some(FairShare { running_max }),
        ..definition("a")
    })
    .await;
    for key in 0..40 {
        submit(&kit, &format!("tenant {key:02}"), 3).await;
    }
    let worker = work(&kit, 60, secs(3_600));
    sleep(secs(10)).await;
    assert_eq!(kit.count("a", StateKind::Processing).await, 40);
    let before = kit.store.scans();
    sleep(secs(20)).await;
    let scans = kit.store.scans() - before;
    // The consumer reads the lanes five times a second, each time in some scans.
    assert!(scans <= 100 * 16, "{scans} scans in 20 s");
    // A key that comes in between has its turn all the same.
    let task = submit(&kit, "tenant 20b", 1).await.remove(0);
    kit.wait_for_state(&task, StateKind::Processing, secs(2))
        .await;
    stop(kit, worker).await;
}

#[tokio::test(start_paused = true)]
async fn g_07_a_backlog_from_before_the_fair_share_takes_turns_with_the_keys() {
    let kit = Arc::new(Kit::new().await);
    kit.put(Job {
        paused: true,
        ..definition("a")
    })
    .await;
    let older = submit(&kit, "older", 2_000).await;
    kit.put(Job {
        fair_share: Some(FairShare::default()),
        ..definition("a")
    })
    .await;
    kit.start();
    let worker = work(&kit, 4, ms(50));
    sleep(secs(2)).await;
    let late = waits(&kit, 20).await;
    // Some are ahead until the consumer knows how few are enough; the backlog alone takes 25 s.
    assert!(late[19] <= ms(400), "{late:?}");
    // Its own tasks go on meanwhile.
    let ended = ended(&kit, &older).await;
    assert!(ended["older"] >= 300, "{ended:?}");
    stop(kit, worker).await;
}
