//! Due tasks are enqueued once, on time and never early.

mod kit;

use std::{collections::BTreeSet, time::Duration};

use dueline_consumer::Config;
use dueline_domain::{Event, Outcome, Quota, RetryClass, StateKind, Token};
use dueline_ports::{Clock as _, JobStore as _, TaskQueue as _};
use kit::{Kit, START, definition, end, ms, name, secs, success};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn f_062_due_tasks_stay_new_until_a_consumer_starts_and_are_then_enqueued() {
    let kit = Kit::new().await;
    let a = kit.submit("a", ms(0)).await;
    let b = kit.submit("b", secs(1)).await;
    let later = kit.submit("b", secs(3_600)).await;
    kit.run_until(secs(30)).await;
    assert_eq!(kit.get(&a).await.kind(), StateKind::New);
    kit.start();
    kit.wait_for_state(&a, StateKind::Enqueued, secs(1)).await;
    kit.wait_for_state(&b, StateKind::Enqueued, secs(1)).await;
    assert_eq!(
        kit.receive_and_ack("a", secs(1)).await.unwrap().task.id,
        a.id
    );
    assert_eq!(
        kit.receive_and_ack("b", secs(1)).await.unwrap().task.id,
        b.id
    );
    assert_eq!(kit.get(&later).await, later, "the task was not due");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_009_a_task_is_never_early_and_at_most_two_milliseconds_late() {
    let kit = Kit::new().await;
    kit.start();
    kit.run_until(ms(313)).await;
    for due_ms in [5_001, 7_777, 9_999] {
        kit.submit("a", ms(due_ms)).await;
    }
    for due_ms in [5_001, 7_777, 9_999] {
        let got = kit.receive_and_ack("a", secs(60)).await.unwrap();
        let due_at = START.after(ms(due_ms));
        assert_eq!(got.task.due_at, due_at, "in the order of their due times");
        let now = kit.clock.now();
        assert!(now >= due_at, "early");
        assert!(now.since(due_at) <= ms(2), "{:?} late", now.since(due_at));
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_010_a_time_in_the_past_means_now() {
    let kit = Kit::new().await;
    kit.start();
    kit.run_until(secs(7_200)).await;
    let past = kit.submit("a", secs(3_600)).await;
    let now = kit.submit("a", secs(7_200)).await;
    kit.wait_for_state(&past, StateKind::Enqueued, ms(1_001))
        .await;
    kit.wait_for_state(&now, StateKind::Enqueued, ms(1_001))
        .await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_059_a_task_that_failed_is_enqueued_again_at_its_retry_time_and_not_before() {
    let kit = Kit::new().await;
    kit.start();
    kit.submit("a", ms(0)).await;
    let message = kit.receive_and_ack("a", secs(5)).await.unwrap();
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
    assert!(kit.receive_and_ack("a", ms(29_990)).await.is_none());
    let again = kit.receive_and_ack("a", secs(5)).await.unwrap();
    assert_eq!(again.task.id, running.id);
    assert_ne!(again.task.token, token, "each enqueue has its own token");
    let now = kit.clock.now();
    assert!(now >= retry_at && now.since(retry_at) <= ms(2));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_136_an_announced_task_that_is_due_sooner_wakes_the_consumer() {
    let kit = Kit::new().await;
    let rare_polls = Config {
        poll_period: secs(3_600),
        ..Config::default()
    };
    kit.start_with(rare_polls);
    let minute = kit.submit("a", secs(60)).await;
    kit.due.announce(minute.run_at);
    kit.run_until(ms(500)).await;
    let second = kit.submit("a", secs(1)).await;
    kit.due.announce(second.run_at);
    for task in [second, minute] {
        let got = kit.receive_and_ack("a", secs(600)).await.unwrap();
        assert_eq!(got.task.id, task.id);
        let late = kit.clock.now().since(task.run_at);
        assert!(late <= ms(2), "{late:?} late");
    }
    assert!(kit.store.scans() <= 8, "{} scans", kit.store.scans());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_136_an_idle_consumer_scans_once_per_poll_period() {
    let kit = Kit::new().await;
    kit.start();
    kit.run_until(secs(100)).await;
    assert!(
        (100..=102).contains(&kit.store.scans()),
        "{}",
        kit.store.scans()
    );
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_136_many_tasks_of_one_instant_are_moved_in_several_batches() {
    let kit = Kit::new().await;
    kit.submit_many("a", secs(5), 5_000).await;
    kit.start();
    kit.run_until(ms(4_999)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 0);
    kit.run_until(ms(5_100)).await;
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
    kit.run_until(secs(3)).await;
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
    assert_eq!(tokens, stored, "each message has the token of its task");
    assert_eq!(tokens.len(), 5_000);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_one_job_does_not_delay_another() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 20_000).await;
    let b = kit.submit("b", ms(1)).await;
    kit.run_until(ms(2)).await;
    let small = Config {
        batch_max: 100,
        ..Config::default()
    };
    kit.start_with(small);
    // Paused time does not pass during work, so the test counts scans.
    while kit.get(&b).await.kind() == StateKind::New {
        tokio::task::yield_now().await;
    }
    assert_eq!(kit.store.scans(), 1);
    assert!(kit.count("a", StateKind::New).await > 19_000);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_on_a_slow_store_does_not_delay_tasks_that_become_due_meanwhile() {
    let kit = Kit::new().await;
    kit.submit_many("a", ms(0), 5_000).await;
    let b = kit.submit("b", ms(500)).await;
    kit.store.slow_down(2);
    kit.start();
    // Writing the backlog takes ten seconds; a scan makes two writes of 200 ms and 400 ms.
    kit.run_until(ms(1_500)).await;
    assert_ne!(kit.get(&b).await.kind(), StateKind::New);
    assert!(kit.count("a", StateKind::New).await > 4_000);
    kit.run_until(ms(15_000)).await;
    assert_eq!(kit.count("a", StateKind::New).await, 0);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_126_a_quota_limits_its_job_and_no_other() {
    let kit = Kit::new().await;
    let quota = Quota {
        rate_per_s: Some(10.0),
        burst: None,
        running_max: None,
    };
    kit.put(dueline_domain::Job {
        quota,
        ..definition("a")
    })
    .await;
    kit.submit_many("a", ms(0), 1_000).await;
    kit.submit_many("b", ms(0), 10).await;
    kit.start();
    kit.run_until(secs(2)).await;
    assert_eq!(kit.count("b", StateKind::Enqueued).await, 10);
    let mut before = kit.count("a", StateKind::Enqueued).await;
    for second in 1..=30 {
        kit.run_until(secs(2 + second)).await;
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
    assert!(kit.store.scans() < 600, "{} scans", kit.store.scans());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_07_tasks_above_the_limit_of_their_job_cause_few_scans() {
    let kit = Kit::new().await;
    let quota = Quota {
        running_max: Some(2),
        ..Quota::default()
    };
    kit.put(dueline_domain::Job {
        quota,
        ..definition("a")
    })
    .await;
    let tasks = kit.submit_many("a", ms(0), 1_000).await;
    kit.start();
    kit.run_until(secs(20)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 2);
    let scans = kit.store.scans();
    assert!(scans <= 130, "{scans} scans in 20 s, one for each look");
    // A task that ends in this process makes room at once, not at the next look.
    kit.run_until(ms(20_050)).await;
    end(&kit, &tasks[0], success()).await;
    kit.due.place_freed(&name("a"));
    kit.run_until(ms(20_070)).await;
    assert_eq!(kit.get(&tasks[2]).await.kind(), StateKind::Enqueued);
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 2);

    // Without a limit all of them go.
    kit.put(definition("a")).await;
    kit.run_until(secs(25)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 999);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_126_a_small_burst_does_not_reduce_a_high_rate() {
    let kit = Kit::new().await;
    let quota = Quota {
        rate_per_s: Some(50.0),
        burst: Some(1),
        running_max: None,
    };
    kit.put(dueline_domain::Job {
        quota,
        ..definition("a")
    })
    .await;
    kit.submit_many("a", ms(0), 1_000).await;
    kit.start();
    kit.run_until(secs(10)).await;
    let enqueued = kit.count("a", StateKind::Enqueued).await;
    assert!((450..=501).contains(&enqueued), "{enqueued} in 10 s");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn announcements_of_paused_tasks_cause_few_scans() {
    let kit = Kit::new().await;
    kit.store.pause_job(&name("a"), true, START).await.unwrap();
    kit.start();
    for n in 0..1_000 {
        kit.run_until(ms(n)).await;
        let task = kit.submit("a", ms(n)).await;
        kit.due.announce(task.run_at);
    }
    assert!(kit.store.scans() <= 110, "{} scans", kit.store.scans());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_scans_do_not_end_the_loop() {
    let kit = Kit::new().await;
    kit.start();
    kit.run_until(secs(2)).await;
    kit.store.fail_scans(4);
    let before = kit.store.scans();
    let started_at = Instant::now();
    let task = kit.submit("a", secs(2)).await;
    kit.wait_for_state(&task, StateKind::Enqueued, secs(20))
        .await;
    assert_eq!(kit.store.scans(), before + 5);
    assert!(
        started_at.elapsed() >= secs(1 + 2 + 4 + 5),
        "failed scans back off"
    );
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scans_continue_when_the_clock_steps_back() {
    let kit = Kit::new().await;
    kit.start();
    kit.run_until(secs(10)).await;
    kit.clock.set_skew(-3_600_000);
    let before = kit.store.scans();
    tokio::time::sleep(secs(10)).await;
    assert!(kit.store.scans() >= before + 9);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_126_a_job_that_is_paused_at_its_quota_causes_no_more_scans_than_others() {
    let kit = Kit::new().await;
    let quota = Quota {
        rate_per_s: Some(10.0),
        burst: None,
        running_max: None,
    };
    kit.put(dueline_domain::Job {
        quota,
        ..definition("a")
    })
    .await;
    kit.submit_many("a", ms(0), 1_000).await;
    kit.start();
    kit.run_until(secs(3)).await;
    let now = START.after(secs(3));
    kit.store.pause_job(&name("a"), true, now).await.unwrap();
    let before = kit.store.scans();
    kit.run_until(secs(13)).await;
    let scans = kit.store.scans() - before;
    assert!(scans <= 12, "{scans} scans in ten seconds");
    kit.stop().await;
}
