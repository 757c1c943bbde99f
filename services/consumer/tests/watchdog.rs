//! Lost messages and lost workers are recovered; slow queues, live workers and outages of the store are not mistaken
//! for them.

mod kit;

use std::collections::BTreeSet;

use dueline_consumer::Config;
use dueline_domain::{Event, Job, Policy, RetryPolicy, RunEnd, StateKind};
use dueline_ports::{Clock as _, JobStore as _, TaskQueue as _};
use dueline_queue_local::LocalQueueConfig;
use kit::{Kit, START, definition, expires_at, ms, name, secs, worker};
use tokio::time::timeout;

#[tokio::test(start_paused = true)]
async fn f_063_a_lost_message_is_sent_again_after_the_enqueue_timeout_and_uses_no_try() {
    let kit = Kit::new().await;
    kit.submit("a", ms(0)).await;
    kit.start();
    let lost = kit.receive_and_ack("a", secs(5)).await.unwrap();
    assert!(kit.receive_and_ack("a", secs(59)).await.is_none());
    let again = kit.receive_and_ack("a", secs(2)).await.unwrap();
    assert_eq!(again.task.id, lost.task.id);
    let claimed = kit.claim(&again, true).await;
    assert_eq!(
        (claimed.tries, claimed.losses),
        (1, 0),
        "this is the first run"
    );
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_087_the_end_of_a_task_by_the_watchdog_wakes_its_waiters_at_once() {
    let kit = Kit::new().await;
    let retry = RetryPolicy {
        retries_max: Some(0),
        ..RetryPolicy::default()
    };
    let policy = Policy {
        retry,
        ..Policy::default()
    };
    kit.put(Job {
        policy,
        ..definition("a")
    })
    .await;
    let task = kit.submit("a", ms(0)).await;
    kit.start();
    let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
    let claimed = kit.claim(&message, false).await;
    let token = message.task.token;
    let lost = kit.apply(&claimed, Event::Start { token }).await;
    let waiter = kit.ended.subscribe(task.id);
    let woken = timeout(secs(60), waiter.signalled()).await;
    assert!(woken.is_ok(), "the waiter was not woken");
    assert_eq!(kit.get(&task).await.kind(), StateKind::Failed);
    let late = kit.clock.now().since(lost.lease().unwrap().ends_at());
    assert!(late <= ms(5), "woken {late:?} after the end of the lease");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_26_a_slow_queue_gets_no_second_message() {
    let kit = Kit::new().await;
    let policy = Policy {
        enqueue_timeout: secs(10),
        ..Policy::default()
    };
    kit.put(Job {
        policy,
        ..definition("a")
    })
    .await;
    kit.submit_many("a", ms(0), 1_500).await;
    kit.start();
    // Half of the backlog is in a controller's buffer for the whole time, the rest in the queue.
    kit.run_until(secs(1)).await;
    let buffered = kit.queue.receive(&name("a"), 750, secs(1)).await.unwrap();
    for _ in 0..30 {
        tokio::time::sleep(secs(10)).await;
        let receipts = buffered.iter().map(|d| d.receipt.clone()).collect();
        kit.queue.extend(receipts).await.unwrap();
    }
    let depth = kit.queue.depth(&name("a")).await.unwrap();
    assert_eq!((depth.visible, depth.in_flight), (750, 750));
    // Every message can still claim its task: no token became stale.
    for message in &buffered {
        let claimed = kit.claim(message, true).await;
        assert_eq!(claimed.tries, 1);
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_26_a_long_queue_is_not_mistaken_for_a_lossy_one() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 1_500).await;
    kit.start_with(Config {
        batch_max: 2_000,
        ..Config::default()
    });
    kit.run_until(secs(30)).await;
    let before = kit.store.snapshot();
    kit.run_until(secs(90)).await;
    assert!(
        kit.store.snapshot() == before,
        "messages were sent again without need"
    );
    // When the queue becomes short, the missing messages are noticed.
    while kit.visible("a").await > 0 {
        kit.queue.receive(&name("a"), 600, secs(1)).await.unwrap();
    }
    kit.run_until(secs(110)).await;
    assert!(kit.store.snapshot() != before);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_26_a_message_lost_in_a_queue_that_stays_long_is_sent_again() {
    let kit = Kit::new().await;
    let lost = kit.enqueue_without_messages("a", 1).await.remove(0);
    kit.start_with(Config {
        batch_max: 2_000,
        ..Config::default()
    });
    kit.submit_many("a", secs(1), 1_500).await;
    kit.run_until(secs(240)).await;
    assert_eq!(kit.get(&lost).await.changed_at, lost.changed_at);
    assert!(kit.visible("a").await >= 1_500);
    // The default enqueue timeout is a minute.
    kit.run_until(secs(310)).await;
    let again = kit.get(&lost).await;
    assert_ne!(again.changed_at, lost.changed_at);
    assert_eq!(again.state.token(), lost.state.token());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_past_its_enqueue_timeouts_is_read_only_at_polls() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 5_000).await;
    kit.start();
    // The default enqueue timeout is a minute; after it, each scan reads a full page of these tasks.
    kit.run_until(secs(65)).await;
    let before = kit.store.scans();
    kit.run_until(secs(85)).await;
    let scans = kit.store.scans() - before;
    assert!((15..=25).contains(&scans), "{scans} scans in 20 seconds");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_26_tasks_of_a_long_queue_do_not_hide_newer_ones() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 1_500).await;
    kit.start();
    // The enqueue timeouts of more tasks than a scan can read have passed, all before this task is due.
    let newer = kit.submit("a", secs(100)).await;
    kit.run_until(secs(102)).await;
    assert_eq!(kit.get(&newer).await.kind(), StateKind::Enqueued);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_064_a_claim_without_a_start_is_reclaimed_after_the_claim_timeout() {
    let kit = Kit::new().await;
    kit.submit("a", ms(0)).await;
    kit.start();
    let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
    let claimed = kit.claim(&message, false).await;
    assert!(kit.receive_and_ack("a", ms(9_990)).await.is_none());
    let again = kit.receive_and_ack("a", ms(20)).await.unwrap();
    assert_ne!(again.task.token, message.task.token);
    let task = kit.get(&claimed).await;
    assert_eq!((task.tries, task.losses), (0, 1));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_065_a_run_without_heartbeats_is_reclaimed_and_kept_in_the_history() {
    let kit = Kit::new().await;
    kit.submit("a", ms(0)).await;
    kit.start();
    let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
    let running = kit.claim(&message, true).await;
    kit.run_until(secs(5)).await;
    kit.heartbeat(&running).await;
    assert!(
        kit.receive_and_ack("a", ms(7_990)).await.is_none(),
        "the worker sent a heartbeat"
    );
    let again = kit.receive_and_ack("a", secs(3)).await.unwrap();
    let task = kit.claim(&again, true).await;
    assert_eq!(task.tries, 2);
    let lost = &task.history.as_ref().unwrap().runs[0];
    assert_eq!(
        (lost.end, &lost.worker, lost.attempt),
        (RunEnd::Lost, &worker(), 0)
    );
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_waits_but_its_lost_worker_is_noticed() {
    let kit = Kit::new().await;
    kit.submit("a", ms(0)).await;
    kit.start();
    let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
    let running = kit.claim(&message, true).await;
    kit.store.pause_job(&name("a"), true, START).await.unwrap();
    let waiting = kit.submit("a", ms(0)).await;
    kit.run_until(secs(30)).await;
    assert_eq!(kit.get(&waiting).await.kind(), StateKind::New);
    assert_ne!(kit.get(&running).await.kind(), StateKind::Processing);
    kit.store.pause_job(&name("a"), false, START).await.unwrap();
    kit.wait_for_state(&waiting, StateKind::Enqueued, ms(1_001))
        .await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_114_a_live_worker_survives_a_restart_of_the_server_and_a_dead_one_does_not() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 2).await;
    kit.start();
    let messages = [
        kit.receive_and_ack("a", secs(5)).await.unwrap(),
        kit.receive_and_ack("a", secs(5)).await.unwrap(),
    ];
    let live = kit.claim(&messages[0], true).await;
    let dead = kit.claim(&messages[1], true).await;
    let kit = kit.restarted(LocalQueueConfig::default()).await;
    // The server is down for longer than the heartbeat timeout: both leases have expired when it is up again.
    kit.run_until(secs(60)).await;
    kit.start();
    kit.run_until(secs(62)).await;
    let live = kit.succeed(&live).await;
    assert_eq!((live.kind(), live.tries), (StateKind::Succeeded, 1));
    let reclaimed = kit.receive_and_ack("a", secs(60)).await.unwrap();
    assert_eq!(reclaimed.task.id, dead.id);
    let waited = kit.clock.now().since(START);
    assert!(waited >= secs(68), "after {waited:?}");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_does_not_count_against_workers() {
    let kit = Kit::new().await;
    kit.submit("a", ms(0)).await;
    kit.start();
    let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
    let running = kit.claim(&message, true).await;
    kit.store.fail_scans(6);
    // 1 + 2 + 4 + 5 + 5 + 5 seconds of failures, in which no heartbeat could be stored.
    kit.run_until(secs(26)).await;
    assert_eq!(kit.get(&running).await, running);
    let succeeded = kit.succeed(&running).await;
    assert_eq!(succeeded.tries, 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_expired_leases_are_reclaimed_at_once() {
    let kit = Kit::new().await;
    kit.submit("a", ms(0)).await;
    kit.start();
    let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
    kit.claim(&message, true).await;
    let kit = kit.restarted(LocalQueueConfig::default()).await;
    kit.run_until(secs(60)).await;
    kit.start_with(Config {
        reclaim_grace: ms(0),
        ..Config::default()
    });
    assert!(kit.receive_and_ack("a", ms(10)).await.is_some());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_recovery_after_an_outage_is_limited() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 300).await;
    let slow_recovery = Config {
        recovery_rate_per_s: 50,
        reclaim_grace: ms(0),
        ..Config::default()
    };
    kit.start_with(slow_recovery);
    for _ in 0..300 {
        let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
        kit.claim(&message, true).await;
    }
    let timeout = secs(8);
    kit.run_until(timeout + ms(100)).await;
    let reclaimed = 300 - kit.count("a", StateKind::Processing).await;
    assert!(reclaimed <= 60, "{reclaimed} at once");
    kit.run_until(timeout + secs(8)).await;
    assert_eq!(kit.count("a", StateKind::Processing).await, 0);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_fills_the_queue_from_the_store() {
    let kit = Kit::new().await;
    let tasks = kit.enqueue_without_messages("a", 50).await;
    kit.run_until(secs(1)).await;
    kit.start();
    kit.run_until(ms(1_001)).await;
    assert_eq!(kit.visible("a").await, 50);
    assert!(kit.get(&tasks[0]).await == tasks[0], "no write was needed");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bounded_queue_is_refilled_until_all_messages_were_delivered() {
    let kit = Kit::with_queue(LocalQueueConfig::with_capacity(8)).await;
    kit.start();
    kit.submit_many("a", ms(0), 100).await;
    kit.run_until(ms(100)).await;
    let mut received = BTreeSet::new();
    for _ in 0..100 {
        let got = kit.queue.receive(&name("a"), 1, secs(3)).await.unwrap();
        // The message is acknowledged once its claim is durable, so that no refill sends it again.
        kit.claim(&got[0], true).await;
        kit.queue.ack(vec![got[0].receipt.clone()]).await.unwrap();
        assert!(received.insert(got[0].task.id));
    }
    assert!(kit.receive_and_ack("a", ms(1)).await.is_none());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_is_created_again() {
    let kit = Kit::new().await;
    let task = kit.submit("a", ms(0)).await;
    kit.start();
    let task = kit
        .wait_for_state(&task, StateKind::Enqueued, secs(1))
        .await;
    kit.queue.remove(&name("a")).await.unwrap();
    let bound = expires_at(&task).after(secs(3)).since(START);
    kit.run_until(bound).await;
    assert_eq!(kit.visible("a").await, 1);
    kit.stop().await;
}
