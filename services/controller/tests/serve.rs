//! A controller receives messages only of jobs that a worker of its host can run.

mod kit;

use std::{sync::Arc, time::Duration};

use dueline_api::{Controller as _, PollRequest};
use dueline_controller::{Config, Serve};
use dueline_ports::{TaskQueue as _, conformance::queue::message};
use kit::{Kit, ms, name, numbers, ranked, request, secs, weighing, worker};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn f_027_messages_of_jobs_that_no_worker_here_runs_are_not_received() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("a"), 1), message(&name("b"), 2)])
        .await;
    assert_eq!(numbers(&kit.poll(request()).await.unwrap()), [1]);
    kit.send(vec![message(&name("b"), 3), message(&name("shell"), 4)])
        .await;
    let wait = secs(20);
    assert_eq!(
        kit.poll(PollRequest { wait, ..request() }).await,
        Ok(vec![])
    );
    let queued = kit.queue.receive(&name("b"), 9, Duration::ZERO).await;
    let queued = queued.unwrap();
    assert_eq!(queued.len(), 2);
    assert!(queued.iter().all(|delivery| delivery.received == 1));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_polls_for_a_kind_of_handler_gets_the_tasks_of_all_its_jobs() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("shell"), 1), message(&name("a"), 2)])
        .await;
    let exec = PollRequest {
        jobs: Vec::new(),
        handlers: vec![Arc::from("exec")],
        ..request()
    };
    assert_eq!(numbers(&kit.poll(exec).await.unwrap()), [1]);
    assert_eq!(kit.depth("a").await.visible, 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_125_a_host_with_a_list_of_jobs_serves_no_others() {
    let kit = Kit::with(Config {
        serve: Serve::Jobs(vec![name("b")]),
        ..Config::default()
    })
    .await;
    kit.send(vec![message(&name("a"), 1), message(&name("b"), 2)])
        .await;
    let both = PollRequest {
        jobs: vec![name("a"), name("b")],
        ..request()
    };
    assert_eq!(numbers(&kit.poll(both).await.unwrap()), [2]);
    sleep(secs(5)).await;
    assert_eq!(kit.depth("a").await.visible, 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_123_a_job_created_at_run_time_is_served_at_once() {
    let kit = Kit::with(Config {
        refresh_period: secs(3_600),
        ..Config::default()
    })
    .await;
    let new = PollRequest {
        jobs: vec![name("new")],
        ..request()
    };
    let begun_at = Instant::now();
    let (got, ()) = tokio::join!(kit.poll(new), async {
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
async fn a_worker_that_polls_rarely_and_without_a_wait_gets_work() {
    let kit = Kit::new().await;
    let without_wait = PollRequest {
        wait: Duration::ZERO,
        ..request()
    };
    for n in 0..3 {
        kit.send(vec![message(&name("a"), n)]).await;
        let got = kit.poll(without_wait.clone()).await.unwrap();
        assert_eq!(numbers(&got), [n]);
        // Long enough for the subscription to expire.
        sleep(secs(60)).await;
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_poll_without_a_wait_is_answered_at_once_when_all_its_jobs_are_served() {
    let kit = Kit::new().await;
    let wait = Duration::ZERO;
    let first = PollRequest { wait, ..request() };
    let begun_at = Instant::now();
    assert_eq!(kit.poll(first.clone()).await, Ok(vec![]));
    assert!(begun_at.elapsed() <= ms(250), "{:?}", begun_at.elapsed());
    let begun_at = Instant::now();
    assert_eq!(kit.poll(first.clone()).await, Ok(vec![]));
    assert_eq!(begun_at.elapsed(), wait);
    // A job that does not exist delays the poll only until the jobs have been checked.
    let unknown = PollRequest {
        jobs: vec![name("a"), name("unknown")],
        ..first
    };
    assert_eq!(kit.poll(unknown).await, Ok(vec![]));
    assert!(begun_at.elapsed() <= ms(1), "{:?}", begun_at.elapsed());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_created_at_run_time_is_served_without_a_signal() {
    let kit = Kit::new().await;
    let new = PollRequest {
        jobs: vec![name("new")],
        ..request()
    };
    kit.subscribe(new.clone()).await;
    kit.status.add_job("new");
    // The queue is created later; receives fail until then.
    let (got, ()) = tokio::join!(kit.poll(new), async {
        sleep(secs(3)).await;
        kit.queue.ensure(&name("new")).await.unwrap();
        kit.send(vec![message(&name("new"), 1)]).await;
    });
    assert_eq!(numbers(&got.unwrap()), [1]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn messages_are_returned_when_the_last_worker_that_can_run_them_deregisters() {
    let kit = Kit::new().await;
    let busy = |worker_name: &str| PollRequest {
        worker: worker(worker_name),
        weight_max: 1,
        ..request()
    };
    kit.send((0..10).map(|n| weighing("a", n, 2)).collect())
        .await;
    let (x, y, ()) = tokio::join!(kit.poll(busy("x")), kit.poll(busy("y")), async {
        kit.until_buffered(10).await;
        kit.controller
            .deregister_worker(&worker("x"))
            .await
            .unwrap();
        sleep(secs(5)).await;
        assert_eq!(kit.controller.buffered(), 10, "one worker is left");
        kit.controller
            .deregister_worker(&worker("y"))
            .await
            .unwrap();
        kit.until_buffered(0).await;
        sleep(ms(1)).await;
        let depth = kit.depth("a").await;
        assert_eq!((depth.visible, depth.in_flight), (10, 0));
    });
    assert_eq!((x, y), (Ok(vec![]), Ok(vec![])));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_job_without_a_subscription_are_not_received() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    sleep(secs(12)).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    sleep(secs(1)).await;
    assert_eq!(kit.controller.buffered(), 0);
    assert_eq!(kit.depth("a").await.visible, 1);
    // Another poll makes the controller receive the message.
    assert_eq!(kit.poll(request()).await.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_121_a_flood_of_one_job_does_not_keep_other_jobs_out_of_the_buffer() {
    let kit = Kit::with(Config {
        buffer_max: 20,
        ..Config::default()
    })
    .await;
    kit.subscribe(request()).await;
    kit.send((0..5_000).map(|n| ranked("a", n, 100)).collect())
        .await;
    kit.until_buffered(20).await;
    kit.send(vec![message(&name("b"), 9_000)]).await;
    let only_b = PollRequest {
        jobs: vec![name("b")],
        ..request()
    };
    let begun_at = Instant::now();
    assert_eq!(numbers(&kit.poll(only_b).await.unwrap()), [9_000]);
    assert!(begun_at.elapsed() <= ms(2));
    assert!(kit.controller.buffered() <= 20);
    // The flood itself is dispatched, too.
    let mut received = 0;
    while received < 5_000 {
        let got = kit.poll(request()).await.unwrap();
        assert!(!got.is_empty(), "{received} received");
        received += got.len();
        assert!(kit.controller.buffered() <= 20);
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_and_recreated_queue_is_received_from_again() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    sleep(secs(1)).await;
    kit.queue.remove(&name("a")).await.unwrap();
    sleep(secs(1)).await;
    let (got, ()) = tokio::join!(kit.poll(request()), async {
        kit.queue.ensure(&name("a")).await.unwrap();
        kit.send(vec![message(&name("a"), 1)]).await;
    });
    assert_eq!(got.unwrap().len(), 1);
    kit.stop().await;
}
