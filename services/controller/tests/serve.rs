//! A controller takes messages of jobs that somebody here can run, and of no others.

mod kit;

use std::{sync::Arc, time::Duration};

use dueline_api::{NextWork, Registration, Work as _};
use dueline_controller::{Config, Serve};
use dueline_ports::{TaskQueue as _, conformance::queue::message};
use kit::{Kit, ask, ms, name, numbers, ranked, secs, worker};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn f_027_messages_of_jobs_nobody_here_runs_stay_untouched() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("a"), 1), message(&name("b"), 2)])
        .await;
    assert_eq!(numbers(&kit.next(ask()).await.unwrap()), [1]);
    kit.send(vec![message(&name("b"), 3), message(&name("shell"), 4)])
        .await;
    let wait = secs(20);
    assert_eq!(kit.next(NextWork { wait, ..ask() }).await, Ok(vec![]));
    let untouched = kit.queue.receive(&name("b"), 9, Duration::ZERO).await;
    let untouched = untouched.unwrap();
    assert_eq!(untouched.len(), 2);
    assert!(untouched.iter().all(|delivery| delivery.received == 1));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_a_kind_of_handler_gets_the_tasks_of_all_its_jobs() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("shell"), 1), message(&name("a"), 2)])
        .await;
    let exec = NextWork {
        jobs: Vec::new(),
        handlers: vec![Arc::from("exec")],
        ..ask()
    };
    assert_eq!(numbers(&kit.next(exec).await.unwrap()), [1]);
    assert_eq!(kit.depth("a").await.visible, 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_125_a_host_of_listed_jobs_serves_no_others() {
    let kit = Kit::with(Config {
        serve: Serve::Jobs(vec![name("b")]),
        ..Config::default()
    })
    .await;
    kit.send(vec![message(&name("a"), 1), message(&name("b"), 2)])
        .await;
    let both = NextWork {
        jobs: vec![name("a"), name("b")],
        ..ask()
    };
    assert_eq!(numbers(&kit.next(both).await.unwrap()), [2]);
    sleep(secs(5)).await;
    assert_eq!(kit.depth("a").await.visible, 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_123_a_job_made_at_run_time_is_served_at_once() {
    let kit = Kit::with(Config {
        refresh_period: secs(3_600),
        ..Config::default()
    })
    .await;
    let wants_new = NextWork {
        jobs: vec![name("new")],
        ..ask()
    };
    let begun_at = Instant::now();
    let (got, ()) = tokio::join!(kit.next(wants_new), async {
        sleep(secs(1)).await;
        kit.queue.ensure(&name("new")).await.unwrap();
        kit.send(vec![message(&name("new"), 1)]).await;
        kit.status.add_job("new");
        kit.jobs_changed.notify_one();
    });
    assert_eq!(numbers(&got.unwrap()), [1]);
    assert!(begun_at.elapsed() <= ms(1_002));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_asks_rarely_and_never_waits_gets_work() {
    let kit = Kit::new().await;
    let asks_once = NextWork {
        wait: Duration::ZERO,
        ..ask()
    };
    for n in 0..3 {
        kit.send(vec![message(&name("a"), n)]).await;
        assert_eq!(numbers(&kit.next(asks_once.clone()).await.unwrap()), [n]);
        // Long enough to be forgotten.
        sleep(secs(60)).await;
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_without_a_wait_is_answered_at_once_when_all_it_wants_is_served() {
    let kit = Kit::new().await;
    let wait = Duration::ZERO;
    let first = NextWork { wait, ..ask() };
    let begun_at = Instant::now();
    assert_eq!(kit.next(first.clone()).await, Ok(vec![]));
    assert!(begun_at.elapsed() <= ms(250), "{:?}", begun_at.elapsed());
    let begun_at = Instant::now();
    assert_eq!(kit.next(first.clone()).await, Ok(vec![]));
    assert_eq!(begun_at.elapsed(), wait);
    // A job that does not exist is waited for no longer than it takes to find that out.
    let nowhere = NextWork {
        jobs: vec![name("a"), name("nowhere")],
        ..first
    };
    assert_eq!(kit.next(nowhere).await, Ok(vec![]));
    assert!(begun_at.elapsed() <= ms(1), "{:?}", begun_at.elapsed());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_made_at_run_time_is_found_without_a_signal() {
    let kit = Kit::new().await;
    let wants_new = NextWork {
        jobs: vec![name("new")],
        ..ask()
    };
    kit.show_interest(wants_new.clone()).await;
    kit.status.add_job("new");
    // Its queue comes later still: until then there is nothing to receive from.
    let (got, ()) = tokio::join!(kit.next(wants_new), async {
        sleep(secs(3)).await;
        kit.queue.ensure(&name("new")).await.unwrap();
        kit.send(vec![message(&name("new"), 1)]).await;
    });
    assert_eq!(numbers(&got.unwrap()), [1]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn messages_go_back_when_the_last_worker_that_could_run_them_has_left() {
    let kit = Kit::new().await;
    let registration = |name: &str| Registration {
        worker: worker(name),
        jobs: vec![kit::name("a")],
        handlers: Vec::new(),
        concurrency: 1,
        embedded: false,
    };
    kit.controller.alive(registration("x")).await.unwrap();
    kit.controller.alive(registration("y")).await.unwrap();
    kit.send((0..10).map(|n| message(&name("a"), n)).collect())
        .await;
    kit.until_buffered(10).await;
    kit.controller.leave(&worker("x")).await.unwrap();
    sleep(secs(5)).await;
    assert_eq!(kit.controller.buffered(), 10, "one is still here");
    kit.controller.leave(&worker("y")).await.unwrap();
    kit.until_buffered(0).await;
    sleep(ms(1)).await;
    let depth = kit.depth("a").await;
    assert_eq!((depth.visible, depth.in_flight), (10, 0));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn messages_go_back_when_the_last_worker_has_fallen_silent() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    kit.until_buffered(1).await;
    sleep(secs(12)).await;
    assert_eq!(kit.controller.buffered(), 0);
    assert_eq!(kit.depth("a").await.visible, 1);
    // Another question brings them in again.
    assert_eq!(kit.next(ask()).await.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_121_a_flood_of_one_job_does_not_keep_another_out_of_the_buffer() {
    let kit = Kit::with(Config {
        buffer_max: 20,
        ..Config::default()
    })
    .await;
    kit.show_interest(ask()).await;
    kit.send((0..5_000).map(|n| ranked("a", n, 100)).collect())
        .await;
    kit.until_buffered(20).await;
    kit.send(vec![message(&name("b"), 9_000)]).await;
    let only_b = NextWork {
        jobs: vec![name("b")],
        ..ask()
    };
    let begun_at = Instant::now();
    assert_eq!(numbers(&kit.next(only_b).await.unwrap()), [9_000]);
    assert!(begun_at.elapsed() <= ms(2));
    assert!(kit.controller.buffered() <= 20);
    // The flood itself goes on.
    let mut seen = 0;
    while seen < 5_000 {
        let got = kit.next(ask()).await.unwrap();
        assert!(!got.is_empty(), "{seen} came");
        seen += got.len();
        assert!(kit.controller.buffered() <= 20);
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_and_recreated_queue_is_received_from_again() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    sleep(secs(1)).await;
    kit.queue.remove(&name("a")).await.unwrap();
    sleep(secs(1)).await;
    let (got, ()) = tokio::join!(kit.next(ask()), async {
        kit.queue.ensure(&name("a")).await.unwrap();
        kit.send(vec![message(&name("a"), 1)]).await;
    });
    assert_eq!(got.unwrap().len(), 1);
    kit.stop().await;
}
