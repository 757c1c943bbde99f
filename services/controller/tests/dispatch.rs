//! Tasks are dispatched in order, each to one worker, and none is lost on the way.

mod kit;

use std::{collections::BTreeSet, sync::atomic::Ordering, task::Poll, time::Duration};

use dueline_api::{Dispatch as _, ErrorKind, PollRequest, StatusController as _};
use dueline_domain::Weight;
use dueline_ports::{TaskQueue as _, conformance::queue::message};
use kit::{Kit, ms, name, numbers, ranked, request, secs, weighing, worker};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

#[tokio::test(start_paused = true)]
async fn f_028_a_poll_waits_for_work_and_returns_as_soon_as_there_is_some() {
    let kit = Kit::new().await;
    let begun_at = Instant::now();
    let (got, ()) = tokio::join!(kit.poll(request()), async {
        sleep(secs(2)).await;
        kit.send(vec![message(&name("a"), 1)]).await;
    });
    assert_eq!(numbers(&got.unwrap()), [1]);
    assert!(begun_at.elapsed() <= ms(2_002));
    let begun_at = Instant::now();
    let wait = secs(1);
    let got = kit.poll(PollRequest { wait, ..request() }).await;
    assert_eq!(got, Ok(vec![]), "an empty answer is not an error");
    assert_eq!(begun_at.elapsed(), wait);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_026_a_late_task_of_higher_priority_goes_before_the_waiting_ones() {
    let kit = Kit::new().await;
    let low = (0..20).map(|n| ranked("a", n, -50)).collect();
    kit.send(low).await;
    let one = PollRequest {
        tasks_max: 1,
        ..request()
    };
    assert_eq!(numbers(&kit.poll(one.clone()).await.unwrap()), [0]);
    kit.send(vec![ranked("a", 99, 50)]).await;
    assert_eq!(numbers(&kit.poll(one).await.unwrap()), [99]);
    let rest = kit.poll(request()).await.unwrap();
    assert_eq!(numbers(&rest), (1..20).collect::<Vec<_>>());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_152_a_flood_of_low_priority_does_not_delay_a_late_task_of_high_priority() {
    let kit = Kit::new().await;
    kit.send((0..9_000).map(|n| ranked("a", n, -50)).collect())
        .await;
    let two = PollRequest {
        tasks_max: 2,
        ..request()
    };
    for n in 10_000..10_100 {
        assert_eq!(kit.poll(two.clone()).await.unwrap().len(), 2);
        // Two low tasks run; meanwhile the queue of this host is left to others.
        sleep(ms(20)).await;
        assert_eq!(kit.controller.buffered(), 0);
        kit.send(vec![ranked("a", n, 50)]).await;
        let got = numbers(&kit.poll(two.clone()).await.unwrap());
        assert_eq!((got[0], got.len()), (n, 2));
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_no_poll_comes_for_are_returned_for_other_hosts() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    // The receive of the last poll still waits.
    kit.send((0..10).map(|n| message(&name("a"), n)).collect())
        .await;
    kit.until_buffered(10).await;
    sleep(ms(1_001)).await;
    assert_eq!(kit.controller.buffered(), 0);
    assert_eq!(kit.depth("a").await.visible, 10);
    assert_eq!(kit.poll(request()).await.unwrap().len(), 10);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_07_a_task_is_claimed_when_it_is_dispatched_and_its_message_is_then_deleted() {
    let kit = Kit::new().await;
    kit.send(vec![weighing("a", 1, 9)]).await;
    let busy = PollRequest {
        weight_max: 8,
        wait: secs(9),
        ..request()
    };
    assert_eq!(kit.poll(busy).await, Ok(vec![]));
    assert!(kit.status.claims().is_empty(), "the task is only buffered");
    assert_eq!(kit.depth("a").await.in_flight, 1);
    assert_eq!(kit.poll(request()).await.unwrap().len(), 1);
    sleep(ms(1)).await;
    assert_eq!(kit.depth("a").await, Default::default());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_030_one_of_twenty_waiting_workers_gets_the_task() {
    let kit = Kit::new().await;
    let mut polls = JoinSet::new();
    for n in 0..20 {
        let controller = kit.controller.clone();
        let request = PollRequest {
            worker: worker(&format!("w{n}")),
            wait: secs(10),
            ..request()
        };
        polls.spawn(async move {
            dueline_api::Controller::poll(&*controller, request)
                .await
                .unwrap()
        });
    }
    sleep(secs(1)).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    let answers = polls.join_all().await;
    assert_eq!(answers.iter().filter(|tasks| tasks.len() == 1).count(), 1);
    assert_eq!(answers.iter().filter(|tasks| tasks.is_empty()).count(), 19);
    assert_eq!(kit.status.claims().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_030_twenty_workers_share_a_thousand_tasks() {
    let kit = Kit::new().await;
    let mut workers = JoinSet::new();
    for n in 0..20 {
        let controller = kit.controller.clone();
        let request = PollRequest {
            worker: worker(&format!("w{n}")),
            tasks_max: 7,
            wait: secs(1),
            ..request()
        };
        workers.spawn(async move {
            let mut share = Vec::new();
            loop {
                let got = dueline_api::Controller::poll(&*controller, request.clone()).await;
                let got = got.unwrap();
                if got.is_empty() {
                    return share;
                }
                assert!(got.len() <= 7);
                share.extend(got.into_iter().map(|task| task.id));
                tokio::task::yield_now().await;
            }
        });
    }
    kit.send((0..1_000).map(|n| message(&name("a"), n)).collect())
        .await;
    let shares = workers.join_all().await;
    assert!(shares.iter().filter(|share| !share.is_empty()).count() > 1);
    let all = shares.concat();
    assert_eq!(all.len(), 1_000);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 1_000);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_029_a_worker_that_disconnects_while_waiting_does_not_get_the_next_task() {
    let kit = Kit::new().await;
    let gone = timeout(secs(1), kit.poll(request())).await;
    assert!(gone.is_err());
    kit.send(vec![message(&name("a"), 1)]).await;
    let other = PollRequest {
        worker: worker("y"),
        ..request()
    };
    let begun_at = Instant::now();
    assert_eq!(kit.poll(other).await.unwrap().len(), 1);
    assert!(begun_at.elapsed() <= ms(2));
    assert_eq!(kit.status.claims()[0].0, worker("y"));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_029_tasks_of_a_worker_that_disconnects_during_the_claim_are_abandoned_at_once() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    kit.send((0..5).map(|n| message(&name("a"), n)).collect())
        .await;
    kit.until_buffered(5).await;
    kit.status.close_gate();
    assert!(timeout(ms(10), kit.poll(request())).await.is_err());
    kit.status.open_gate();
    // All are claimed for the disconnected worker, abandoned, and dispatched to another worker.
    let mut received = 0;
    let begun_at = Instant::now();
    while received < 5 {
        let other = PollRequest {
            worker: worker("y"),
            ..request()
        };
        let got = kit.poll(other).await.unwrap();
        assert!(
            !got.is_empty(),
            "the tasks are lost until the claim timeout"
        );
        received += got.len();
    }
    assert!(begun_at.elapsed() <= ms(5));
    let claims = kit.status.claims();
    assert_eq!(claims.len(), 10);
    assert!(claims[..5].iter().all(|(by, _)| *by == worker("w")));
    assert!(claims[5..].iter().all(|(by, _)| *by == worker("y")));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_029_tasks_of_an_answer_that_is_never_read_are_abandoned() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    kit.until_buffered(1).await;
    let mut poll = Box::pin(kit.poll(request()));
    std::future::poll_fn(|context| {
        assert!(poll.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    // The answer is ready when the worker disconnects without reading it.
    kit.until(|| kit.status.owned() == 1).await;
    sleep(ms(1)).await;
    drop(poll);
    kit.until(|| kit.status.owned() == 0).await;
    assert_eq!(kit.poll(request()).await.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_034_no_more_weight_is_dispatched_than_the_worker_has_free() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    kit.send((0..10).map(|n| weighing("a", n, 3)).collect())
        .await;
    kit.until_buffered(10).await;
    let ten = PollRequest {
        weight_max: 10,
        task_weight_max: 10,
        ..request()
    };
    for expected in [3, 3, 3, 1] {
        assert_eq!(kit.poll(ten.clone()).await.unwrap().len(), expected);
    }
    let none = PollRequest {
        weight_max: 0,
        ..request()
    };
    let refused = kit.poll(none).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_06_a_task_too_heavy_for_all_workers_here_blocks_no_other_and_goes_to_a_stronger_worker()
{
    let kit = Kit::new().await;
    let weak = PollRequest {
        weight_max: 5,
        task_weight_max: 5,
        ..request()
    };
    kit.subscribe(weak.clone()).await;
    // More heavy tasks than the buffer can hold.
    kit.send((0..3_000).map(|n| weighing("a", n, 8)).collect())
        .await;
    kit.send(vec![weighing("a", 9_000, 1)]).await;
    assert_eq!(numbers(&kit.poll(weak).await.unwrap()), [9_000]);
    assert!(
        kit.depth("a").await.in_flight >= 2_500,
        "the heavy messages stay hidden"
    );
    let strong = PollRequest {
        worker: worker("strong"),
        weight_max: 8,
        task_weight_max: 8,
        ..request()
    };
    assert_eq!(kit.poll(strong).await.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_message_is_deleted_and_never_dispatched() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("a"), 1)]).await;
    assert_eq!(kit.poll(request()).await.unwrap().len(), 1);
    // A late message of the same task, with another token.
    let mut copy = message(&name("a"), 1);
    copy.token = dueline_domain::Token::from_random(77);
    kit.send(vec![copy]).await;
    let wait = secs(1);
    assert_eq!(
        kit.poll(PollRequest { wait, ..request() }).await,
        Ok(vec![])
    );
    assert_eq!(kit.depth("a").await, Default::default());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_down_messages_are_claimed_again_at_a_bounded_rate() {
    let kit = Kit::new().await;
    kit.status.is_down.store(true, Ordering::Relaxed);
    kit.send(vec![message(&name("a"), 1)]).await;
    let wait = secs(5);
    assert_eq!(
        kit.poll(PollRequest { wait, ..request() }).await,
        Ok(vec![])
    );
    kit.status.is_down.store(false, Ordering::Relaxed);
    let begun_at = Instant::now();
    assert_eq!(kit.poll(request()).await.unwrap().len(), 1);
    assert!(begun_at.elapsed() <= secs(5));
    let calls = kit.status.claim_calls();
    assert!((4..=6).contains(&calls), "{calls} claims in ten seconds");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_cannot_claim_leaves_the_messages_to_others() {
    let kit = Kit::new().await;
    kit.status.is_down.store(true, Ordering::Relaxed);
    let one = PollRequest {
        tasks_max: 1,
        wait: secs(60),
        ..request()
    };
    let cut_off = kit.poll(one.clone());
    let others = async {
        sleep(secs(1)).await;
        kit.send((0..500).map(|n| message(&name("a"), n)).collect())
            .await;
        sleep(secs(1)).await;
        // The first controller buffers none of them, and its pauses have become long by now.
        assert_eq!(kit.controller.buffered(), 0);
        let (second, ended) = kit.second_controller();
        let begun_at = Instant::now();
        let mut received = BTreeSet::new();
        while received.len() < 500 {
            let got = dueline_api::Controller::poll(&*second, request())
                .await
                .unwrap();
            received.extend(got.into_iter().map(|task| task.id));
            let count = received.len();
            assert!(begun_at.elapsed() <= secs(5), "{count} received");
        }
        ended
    };
    let (got, ended) = tokio::join!(cut_off, others);
    assert_eq!(got, Ok(vec![]));
    kit.shutdown.stop_intake();
    ended.wait().await.unwrap();
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn throttled_claims_of_one_job_do_not_pause_other_jobs() {
    let kit = Kit::new().await;
    *kit.status.throttled.lock().unwrap() = Some(name("a"));
    let both = |wait| PollRequest {
        jobs: vec![name("a"), name("b")],
        wait,
        ..request()
    };
    kit.subscribe(both(ms(1))).await;
    kit.send((0..50).map(|n| message(&name("a"), n)).collect())
        .await;
    let begun_at = Instant::now();
    for n in 100..120 {
        sleep(secs(1)).await;
        kit.send(vec![message(&name("b"), n)]).await;
        let sent_at = Instant::now();
        let got = kit.poll(both(secs(1))).await.unwrap();
        assert_eq!(numbers(&got), [n]);
        assert!(sent_at.elapsed() <= ms(100), "{:?}", sent_at.elapsed());
    }
    let calls = kit.status.claim_calls();
    assert!(
        calls <= 20 + 12,
        "{calls} claims in {:?}",
        begun_at.elapsed()
    );
    *kit.status.throttled.lock().unwrap() = None;
    let got = kit.poll(both(secs(6))).await.unwrap();
    assert!(!got.is_empty(), "job a resumes after its pause");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn buffered_messages_stay_invisible_for_as_long_as_they_are_buffered() {
    let kit = Kit::new().await;
    // A worker waits until it has room for the heavy tasks.
    let busy = PollRequest {
        weight_max: 1,
        wait: secs(300),
        ..request()
    };
    kit.send((0..10).map(|n| weighing("a", n, 2)).collect())
        .await;
    let (got, ()) = tokio::join!(kit.poll(busy), async {
        kit.until_buffered(10).await;
        for _ in 0..290 {
            sleep(secs(1)).await;
            let depth = kit.depth("a").await;
            assert_eq!((depth.visible, depth.in_flight), (0, 10));
        }
        assert_eq!(kit.controller.buffered(), 10);
    });
    assert_eq!(got, Ok(vec![]));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_122_a_shutdown_returns_buffered_messages_and_refuses_polls() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    kit.send((0..10).map(|n| message(&name("a"), n)).collect())
        .await;
    kit.until_buffered(10).await;
    kit.shutdown.stop_intake();
    kit.ended().await;
    let depth = kit.depth("a").await;
    assert_eq!((depth.visible, depth.in_flight), (10, 0));
    let refused = kit.poll(request()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(refused.reason().name(), "shutting_down");
}

#[tokio::test(start_paused = true)]
async fn f_122_a_shutdown_wakes_waiting_polls_and_lets_claims_in_flight_finish() {
    let kit = Kit::new().await;
    let begun_at = Instant::now();
    let (waiting, ()) = tokio::join!(kit.poll(request()), async {
        sleep(secs(1)).await;
        kit.shutdown.stop_intake();
    });
    assert_eq!(waiting.unwrap_err().reason().name(), "shutting_down");
    assert_eq!(begun_at.elapsed(), secs(1));
    kit.ended().await;

    let kit = Kit::new().await;
    kit.status.close_gate();
    kit.send(vec![message(&name("a"), 1)]).await;
    let (got, ()) = tokio::join!(kit.poll(request()), async {
        sleep(secs(1)).await;
        kit.shutdown.stop_intake();
        sleep(secs(1)).await;
        kit.status.open_gate();
    });
    assert_eq!(got.unwrap().len(), 1);
    kit.ended().await;
    assert_eq!(kit.queue.depth(&name("a")).await.unwrap().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_huge_wait_does_not_panic() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("a"), 1)]).await;
    let wait = Duration::MAX;
    let got = kit.poll(PollRequest { wait, ..request() }).await;
    assert_eq!(got.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_is_reserved_for_a_task_that_is_being_stored() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    let reserve = || kit.controller.clone().reserve(&name("a"), Weight::ONE);
    assert!(reserve().is_none(), "no worker waits");
    let waiting = kit.poll(request());
    let stored = async {
        sleep(ms(1)).await;
        let heavy = Weight::new(101).unwrap();
        assert!(
            kit.controller.clone().reserve(&name("a"), heavy).is_none(),
            "too heavy"
        );
        assert!(
            kit.controller
                .clone()
                .reserve(&name("b"), Weight::ONE)
                .is_none(),
            "not polled for"
        );
        // The reservation is not used: the worker goes on waiting.
        drop(reserve().expect("a worker waits"));
        sleep(ms(1)).await;
        let reserved = reserve().expect("the worker waits again");
        assert!(reserve().is_none(), "the worker is reserved once");
        assert_eq!(reserved.worker(), &worker("w"));
        // A message that arrives meanwhile stays for the next poll.
        kit.send(vec![ranked("a", 7, 0)]).await;
        sleep(ms(5)).await;
        let claimed = kit
            .status
            .claim(&worker("w"), vec![ranked("a", 9, 0)], false)
            .await;
        reserved.deliver(claimed.into_iter().next().unwrap().unwrap());
    };
    let (assignments, ()) = tokio::join!(waiting, stored);
    assert_eq!(numbers(&assignments.unwrap()), [9]);
    assert_eq!(numbers(&kit.poll(request()).await.unwrap()), [7]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_06_no_worker_is_reserved_while_a_heavy_task_of_another_job_waits_for_its_free_weight() {
    let kit = Kit::new().await;
    let both = PollRequest {
        jobs: vec![name("a"), name("b")],
        weight_max: 5,
        task_weight_max: 8,
        wait: secs(10),
        ..request()
    };
    let reserve = || kit.controller.clone().reserve(&name("b"), Weight::ONE);
    let waiting = kit.poll(both.clone());
    let stored = async {
        sleep(secs(1)).await;
        drop(reserve().expect("the buffer has nothing for the worker"));
        sleep(ms(1)).await;
        kit.send(vec![weighing("a", 1, 8)]).await;
        kit.until_buffered(1).await;
        assert!(reserve().is_none(), "the heavy task comes first");
        // The message of the light task is buffered, where only a bounded number may pass the heavy task.
        kit.send(vec![message(&name("b"), 2)]).await;
    };
    let (got, ()) = tokio::join!(waiting, stored);
    assert_eq!(numbers(&got.unwrap()), [2]);
    // A worker that could never run the heavy task is still reserved.
    let weak = PollRequest {
        task_weight_max: 5,
        ..both.clone()
    };
    let (got, ()) = tokio::join!(kit.poll(weak), async {
        sleep(secs(1)).await;
        drop(reserve().expect("the heavy task is for other workers"));
    });
    assert_eq!(got, Ok(vec![]));
    let strong = PollRequest {
        weight_max: 8,
        ..both
    };
    assert_eq!(numbers(&kit.poll(strong).await.unwrap()), [1]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_029_a_task_stored_for_a_worker_that_disconnected_is_abandoned() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    let mut waiting = Box::pin(kit.poll(request()));
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("there is no work"),
        () = sleep(ms(1)) => {}
    }
    let reserved = kit
        .controller
        .clone()
        .reserve(&name("a"), Weight::ONE)
        .unwrap();
    let claimed = kit
        .status
        .claim(&worker("w"), vec![ranked("a", 9, 0)], false)
        .await;
    drop(waiting);
    reserved.deliver(claimed.into_iter().next().unwrap().unwrap());
    let again = kit
        .poll(PollRequest {
            worker: worker("x"),
            ..request()
        })
        .await
        .unwrap();
    assert_eq!(again.len(), 1, "another worker gets the task at once");
    kit.stop().await;
}
