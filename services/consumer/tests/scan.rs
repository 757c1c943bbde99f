//! Due tasks reach their queue: on time, never early, once.

mod kit;

use std::{collections::BTreeSet, time::Duration};

use dueline_consumer::Config;
use dueline_domain::{Event, Outcome, Quota, RetryClass, StateKind, Token};
use dueline_ports::{Clock as _, JobStore as _, TaskQueue as _};
use kit::{Kit, START, definition, ms, name, secs};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn f_062_due_tasks_stay_new_until_a_consumer_comes_and_then_reach_their_queue() {
    let kit = Kit::new().await;
    let a = kit.submit("a", ms(0)).await;
    let b = kit.submit("b", secs(1)).await;
    let later = kit.submit("b", secs(3_600)).await;
    kit.until(secs(30)).await;
    assert_eq!(kit.get(&a).await.kind(), StateKind::New);
    kit.start();
    kit.until_state(&a, StateKind::Enqueued, secs(1)).await;
    kit.until_state(&b, StateKind::Enqueued, secs(1)).await;
    assert_eq!(kit.take("a", secs(1)).await.unwrap().task.id, a.id);
    assert_eq!(kit.take("b", secs(1)).await.unwrap().task.id, b.id);
    assert_eq!(kit.get(&later).await, later, "it was not due");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_009_a_task_is_never_early_and_at_most_two_milliseconds_late() {
    let kit = Kit::new().await;
    kit.start();
    kit.until(ms(313)).await;
    for due_ms in [5_001, 7_777, 9_999] {
        kit.submit("a", ms(due_ms)).await;
    }
    for due_ms in [5_001, 7_777, 9_999] {
        let got = kit.take("a", secs(60)).await.unwrap();
        let due_at = START.after(ms(due_ms));
        assert_eq!(got.task.due_at, due_at, "in the order of their times");
        let now = kit.clock.now();
        assert!(now >= due_at, "early");
        assert!(now.since(due_at) <= ms(2), "{:?} late", now.since(due_at));
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_010_a_time_that_has_passed_means_now() {
    let kit = Kit::new().await;
    kit.start();
    kit.until(secs(7_200)).await;
    let past = kit.submit("a", secs(3_600)).await;
    let now = kit.submit("a", secs(7_200)).await;
    kit.until_state(&past, StateKind::Enqueued, ms(1_001)).await;
    kit.until_state(&now, StateKind::Enqueued, ms(1_001)).await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_059_a_task_that_failed_comes_back_at_its_time_and_not_before() {
    let kit = Kit::new().await;
    kit.start();
    kit.submit("a", ms(0)).await;
    let message = kit.take("a", secs(5)).await.unwrap();
    let running = kit.claim(&message, true).await;
    let outcome = Outcome::Retriable {
        class: RetryClass::Standard,
        delay: Some(secs(30)),
        error: "not yet".into(),
    };
    let token = running.state.token().unwrap();
    let finish = Event::Finish {
        token,
        started_at: None,
        outcome,
        jitter: Default::default(),
    };
    let failed = kit.apply(&running, finish).await;
    let retry_at = failed.state.trigger_at().unwrap();
    assert!(kit.take("a", ms(29_990)).await.is_none());
    let again = kit.take("a", secs(5)).await.unwrap();
    assert_eq!(again.task.id, running.id);
    assert_ne!(again.task.token, token, "each hand-on has its own token");
    let now = kit.clock.now();
    assert!(now >= retry_at && now.since(retry_at) <= ms(2));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_136_a_sooner_task_wakes_the_consumer() {
    let kit = Kit::new().await;
    let lazy = Config {
        poll_period: secs(3_600),
        ..Config::default()
    };
    kit.start_with(lazy);
    let minute = kit.submit("a", secs(60)).await;
    kit.due.announce(minute.run_at);
    kit.until(ms(500)).await;
    let second = kit.submit("a", secs(1)).await;
    kit.due.announce(second.run_at);
    for task in [second, minute] {
        let got = kit.take("a", secs(600)).await.unwrap();
        assert_eq!(got.task.id, task.id);
        let late = kit.clock.now().since(task.run_at);
        assert!(late <= ms(2), "{late:?} late");
    }
    assert!(kit.store.looks() <= 8, "{} looks", kit.store.looks());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_136_an_idle_consumer_looks_once_per_poll_period() {
    let kit = Kit::new().await;
    kit.start();
    kit.until(secs(100)).await;
    assert!(
        (100..=102).contains(&kit.store.looks()),
        "{}",
        kit.store.looks()
    );
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_136_many_tasks_of_one_instant_are_moved_in_several_batches() {
    let kit = Kit::new().await;
    kit.submit_many("a", secs(5), 5_000).await;
    kit.start();
    kit.until(ms(4_999)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 0);
    kit.until(ms(5_100)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 5_000);
    assert_eq!(kit.visible("a").await, 5_000);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_16_two_consumers_enqueue_each_of_5000_tasks_once() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 5_000).await;
    kit.start();
    kit.start();
    kit.until(secs(3)).await;
    let tasks = kit.store.snapshot();
    assert!(tasks.iter().all(|task| task.kind() == StateKind::Enqueued));
    let mut tokens = BTreeSet::new();
    let job = name("a");
    loop {
        let got = kit
            .queue
            .receive(&job, 1_000, Duration::ZERO)
            .await
            .unwrap();
        if got.is_empty() {
            break;
        }
        for delivery in got {
            assert!(tokens.insert(delivery.task.token), "sent twice");
        }
    }
    let stored: BTreeSet<Token> = tasks.iter().filter_map(|t| t.state.token()).collect();
    assert_eq!(tokens, stored, "each message is the one its task knows");
    assert_eq!(tokens.len(), 5_000);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_one_job_does_not_delay_another() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 20_000).await;
    let b = kit.submit("b", ms(1)).await;
    kit.until(ms(2)).await;
    let small = Config {
        batch_max: 100,
        ..Config::default()
    };
    kit.start_with(small);
    // Time stands still while there is work, so count the looks instead.
    while kit.get(&b).await.kind() == StateKind::New {
        tokio::task::yield_now().await;
    }
    assert_eq!(kit.store.looks(), 1);
    assert!(kit.count("a", StateKind::New).await > 19_000);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_on_a_slow_store_does_not_delay_what_comes_due_meanwhile() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 5_000).await;
    let b = kit.submit("b", ms(500)).await;
    kit.store.slow_down(2);
    kit.start();
    // The backlog takes ten seconds, a look makes two calls of 200 ms and 400 ms.
    kit.until(ms(1_500)).await;
    assert_ne!(kit.get(&b).await.kind(), StateKind::New);
    assert!(kit.count("a", StateKind::New).await > 4_000);
    kit.until(ms(15_000)).await;
    assert_eq!(kit.count("a", StateKind::New).await, 0);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_126_a_quota_holds_its_job_and_no_other() {
    let kit = Kit::new().await;
    let quota = Quota {
        rate_per_s: Some(10.0),
        burst: None,
    };
    kit.put(dueline_domain::Job {
        quota,
        ..definition("a")
    })
    .await;
    kit.submit_many("a", ms(0), 1_000).await;
    kit.submit_many("b", ms(0), 10).await;
    kit.start();
    kit.until(secs(2)).await;
    assert_eq!(kit.count("b", StateKind::Enqueued).await, 10);
    let mut before = kit.count("a", StateKind::Enqueued).await;
    for second in 1..=30 {
        kit.until(secs(2 + second)).await;
        let now = kit.count("a", StateKind::Enqueued).await;
        assert!(
            (9..=11).contains(&(now - before)),
            "{} a second",
            now - before
        );
        before = now;
    }
    assert!((310..=341).contains(&before), "{before} in 32 s");
    assert_eq!(before + kit.count("a", StateKind::New).await, 1_000);
    assert!(kit.store.looks() < 600, "{} looks", kit.store.looks());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_126_a_small_burst_does_not_slow_a_high_rate_down() {
    let kit = Kit::new().await;
    let quota = Quota {
        rate_per_s: Some(50.0),
        burst: Some(1),
    };
    kit.put(dueline_domain::Job {
        quota,
        ..definition("a")
    })
    .await;
    kit.submit_many("a", ms(0), 1_000).await;
    kit.start();
    kit.until(secs(10)).await;
    let enqueued = kit.count("a", StateKind::Enqueued).await;
    assert!((450..=501).contains(&enqueued), "{enqueued} in 10 s");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn announcements_of_tasks_held_back_cause_no_storm_of_looks() {
    let kit = Kit::new().await;
    kit.store.pause_job(&name("a"), true, START).await.unwrap();
    kit.start();
    for n in 0..1_000 {
        kit.until(ms(n)).await;
        let task = kit.submit("a", ms(n)).await;
        kit.due.announce(task.run_at);
    }
    assert!(kit.store.looks() <= 110, "{} looks", kit.store.looks());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_looks_do_not_end_the_scan() {
    let kit = Kit::new().await;
    kit.start();
    kit.until(secs(2)).await;
    kit.store.fail_looks(4);
    let before = kit.store.looks();
    let begun_at = Instant::now();
    let task = kit.submit("a", secs(2)).await;
    kit.until_state(&task, StateKind::Enqueued, secs(20)).await;
    assert_eq!(kit.store.looks(), before + 5);
    assert!(begun_at.elapsed() >= secs(1 + 2 + 4 + 5), "it backs off");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_stops_nothing() {
    let kit = Kit::new().await;
    kit.start();
    kit.until(secs(10)).await;
    kit.clock.set_skew(-3_600_000);
    let before = kit.store.looks();
    tokio::time::sleep(secs(10)).await;
    assert!(kit.store.looks() >= before + 9);
    kit.stop().await;
}
