//! Work is handed out in order, to one worker each, and nothing is lost on the way.

mod kit;

use std::{collections::BTreeSet, sync::atomic::Ordering, task::Poll, time::Duration};

use dueline_api::{Dispatch as _, ErrorKind, NextWork, Status as _};
use dueline_domain::Weight;
use dueline_ports::{TaskQueue as _, conformance::queue::message};
use kit::{Kit, ask, ms, name, numbers, ranked, secs, weighing, worker};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

#[tokio::test(start_paused = true)]
async fn f_028_next_waits_for_work_and_returns_as_soon_as_there_is_some() {
    let kit = Kit::new().await;
    let begun_at = Instant::now();
    let (got, ()) = tokio::join!(kit.next(ask()), async {
        sleep(secs(2)).await;
        kit.send(vec![message(&name("a"), 1)]).await;
    });
    assert_eq!(numbers(&got.unwrap()), [1]);
    assert!(begun_at.elapsed() <= ms(2_002));
    let begun_at = Instant::now();
    let wait = secs(1);
    let got = kit.next(NextWork { wait, ..ask() }).await;
    assert_eq!(got, Ok(vec![]), "an empty answer is no error");
    assert_eq!(begun_at.elapsed(), wait);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_026_a_late_but_urgent_task_goes_before_the_buffered_ones() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    let low = (0..20).map(|n| ranked("a", n, -50)).collect();
    kit.send(low).await;
    kit.until_buffered(20).await;
    kit.send(vec![ranked("a", 99, 50)]).await;
    kit.until_buffered(21).await;
    let one = NextWork {
        tasks_max: 1,
        ..ask()
    };
    assert_eq!(numbers(&kit.next(one).await.unwrap()), [99]);
    let rest = kit.next(ask()).await.unwrap();
    assert_eq!(numbers(&rest), (0..20).collect::<Vec<_>>());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_07_a_task_is_claimed_when_it_is_handed_out_and_its_message_then_deleted() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    kit.until_buffered(1).await;
    sleep(secs(9)).await;
    assert!(kit.status.claims().is_empty(), "it is only buffered");
    assert_eq!(kit.depth("a").await.in_flight, 1);
    assert_eq!(kit.next(ask()).await.unwrap().len(), 1);
    sleep(ms(1)).await;
    assert_eq!(kit.depth("a").await, Default::default());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_030_one_of_twenty_waiters_gets_the_task() {
    let kit = Kit::new().await;
    let mut waiters = JoinSet::new();
    for n in 0..20 {
        let controller = kit.controller.clone();
        let ask = NextWork {
            worker: worker(&format!("w{n}")),
            wait: secs(10),
            ..ask()
        };
        waiters.spawn(async move { dueline_api::Work::next(&*controller, ask).await.unwrap() });
    }
    sleep(secs(1)).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    let answers = waiters.join_all().await;
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
        let ask = NextWork {
            worker: worker(&format!("w{n}")),
            tasks_max: 7,
            wait: secs(1),
            ..ask()
        };
        workers.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let got = dueline_api::Work::next(&*controller, ask.clone()).await;
                let got = got.unwrap();
                if got.is_empty() {
                    return mine;
                }
                assert!(got.len() <= 7);
                mine.extend(got.into_iter().map(|task| task.id));
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
async fn f_029_a_waiter_that_went_away_does_not_keep_the_task_from_another() {
    let kit = Kit::new().await;
    let gone = timeout(secs(1), kit.next(ask())).await;
    assert!(gone.is_err());
    kit.send(vec![message(&name("a"), 1)]).await;
    let other = NextWork {
        worker: worker("y"),
        ..ask()
    };
    let begun_at = Instant::now();
    assert_eq!(kit.next(other).await.unwrap().len(), 1);
    assert!(begun_at.elapsed() <= ms(2));
    assert_eq!(kit.status.claims()[0].0, worker("y"));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_029_a_worker_that_goes_away_during_the_claim_gives_its_tasks_back_at_once() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send((0..5).map(|n| message(&name("a"), n)).collect())
        .await;
    kit.until_buffered(5).await;
    kit.status.close_gate();
    assert!(timeout(ms(10), kit.next(ask())).await.is_err());
    kit.status.open_gate();
    // All were claimed for the worker that left, given back, and reach another worker.
    let mut seen = 0;
    let begun_at = Instant::now();
    while seen < 5 {
        let other = NextWork {
            worker: worker("y"),
            ..ask()
        };
        let got = kit.next(other).await.unwrap();
        assert!(!got.is_empty(), "they are lost until the claim timeout");
        seen += got.len();
    }
    assert!(begun_at.elapsed() <= ms(5));
    let claims = kit.status.claims();
    assert_eq!(claims.len(), 10);
    assert!(claims[..5].iter().all(|(by, _)| *by == worker("w")));
    assert!(claims[5..].iter().all(|(by, _)| *by == worker("y")));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_029_an_answer_that_nobody_reads_is_given_back() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    kit.until_buffered(1).await;
    let mut asked = Box::pin(kit.next(ask()));
    std::future::poll_fn(|context| {
        assert!(asked.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    // The answer lies ready when whoever asked goes away without a look.
    kit.until(|| kit.status.owned() == 1).await;
    sleep(ms(1)).await;
    drop(asked);
    kit.until(|| kit.status.owned() == 0).await;
    assert_eq!(kit.next(ask()).await.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_034_no_more_weight_is_handed_out_than_the_worker_has_free() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send((0..10).map(|n| weighing("a", n, 3)).collect())
        .await;
    kit.until_buffered(10).await;
    let ten = NextWork {
        weight_max: 10,
        task_weight_max: 10,
        ..ask()
    };
    for expected in [3, 3, 3, 1] {
        assert_eq!(kit.next(ten.clone()).await.unwrap().len(), expected);
    }
    let none = NextWork {
        weight_max: 0,
        ..ask()
    };
    let refused = kit.next(none).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_06_a_task_too_heavy_for_all_workers_here_blocks_nobody_and_finds_a_stronger_one() {
    let kit = Kit::new().await;
    let weak = NextWork {
        weight_max: 5,
        task_weight_max: 5,
        ..ask()
    };
    kit.show_interest(weak.clone()).await;
    // More heavy ones than the buffer holds.
    kit.send((0..3_000).map(|n| weighing("a", n, 8)).collect())
        .await;
    kit.send(vec![weighing("a", 9_000, 1)]).await;
    assert_eq!(numbers(&kit.next(weak).await.unwrap()), [9_000]);
    assert!(
        kit.depth("a").await.in_flight >= 2_500,
        "they are set aside"
    );
    let strong = NextWork {
        worker: worker("strong"),
        weight_max: 8,
        task_weight_max: 8,
        ..ask()
    };
    assert_eq!(kit.next(strong).await.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_message_is_deleted_and_never_handed_out() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("a"), 1)]).await;
    assert_eq!(kit.next(ask()).await.unwrap().len(), 1);
    // The same task again, as a late copy under another token.
    let mut copy = message(&name("a"), 1);
    copy.token = dueline_domain::Token::from_random(77);
    kit.send(vec![copy]).await;
    let wait = secs(1);
    assert_eq!(kit.next(NextWork { wait, ..ask() }).await, Ok(vec![]));
    assert_eq!(kit.depth("a").await, Default::default());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_down_messages_come_back_without_a_storm() {
    let kit = Kit::new().await;
    kit.status.is_down.store(true, Ordering::Relaxed);
    kit.send(vec![message(&name("a"), 1)]).await;
    let wait = secs(5);
    assert_eq!(kit.next(NextWork { wait, ..ask() }).await, Ok(vec![]));
    kit.status.is_down.store(false, Ordering::Relaxed);
    let begun_at = Instant::now();
    assert_eq!(kit.next(ask()).await.unwrap().len(), 1);
    assert!(begun_at.elapsed() <= secs(5));
    let calls = kit.status.claim_calls();
    assert!((4..=6).contains(&calls), "{calls} claims in ten seconds");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_can_claim_nothing_leaves_the_messages_to_others() {
    let kit = Kit::new().await;
    kit.status.is_down.store(true, Ordering::Relaxed);
    let one = NextWork {
        tasks_max: 1,
        wait: secs(60),
        ..ask()
    };
    let cut_off = kit.next(one.clone());
    let others = async {
        sleep(secs(1)).await;
        kit.send((0..500).map(|n| message(&name("a"), n)).collect())
            .await;
        sleep(secs(1)).await;
        // It holds none of them, and its pauses have become long by now.
        assert_eq!(kit.controller.buffered(), 0);
        let (second, ended) = kit.second_controller();
        let begun_at = Instant::now();
        let mut seen = BTreeSet::new();
        while seen.len() < 500 {
            let got = dueline_api::Work::next(&*second, ask()).await.unwrap();
            seen.extend(got.into_iter().map(|task| task.id));
            assert!(begun_at.elapsed() <= secs(5), "{} came", seen.len());
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
async fn a_job_whose_claims_are_throttled_pauses_alone() {
    let kit = Kit::new().await;
    *kit.status.throttled.lock().unwrap() = Some(name("a"));
    let both = |wait| NextWork {
        jobs: vec![name("a"), name("b")],
        wait,
        ..ask()
    };
    kit.show_interest(both(ms(1))).await;
    kit.send((0..50).map(|n| message(&name("a"), n)).collect())
        .await;
    let begun_at = Instant::now();
    for n in 100..120 {
        sleep(secs(1)).await;
        kit.send(vec![message(&name("b"), n)]).await;
        let sent_at = Instant::now();
        let got = kit.next(both(secs(1))).await.unwrap();
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
    let got = kit.next(both(secs(6))).await.unwrap();
    assert!(!got.is_empty(), "it goes on by itself");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn buffered_messages_stay_invisible_for_as_long_as_they_are_buffered() {
    let kit = Kit::new().await;
    let patient = NextWork {
        tasks_max: 1,
        ..ask()
    };
    kit.show_interest(patient.clone()).await;
    kit.send((0..10).map(|n| message(&name("a"), n)).collect())
        .await;
    kit.until_buffered(10).await;
    for _ in 0..300 {
        sleep(secs(1)).await;
        let depth = kit.depth("a").await;
        assert_eq!((depth.visible, depth.in_flight), (0, 10));
        // The worker says that it is still there.
        let registration = dueline_api::Registration {
            worker: patient.worker.clone(),
            jobs: patient.jobs.clone(),
            handlers: Vec::new(),
            concurrency: 100,
            embedded: false,
        };
        let alive = dueline_api::Work::alive(&*kit.controller, registration);
        alive.await.unwrap();
    }
    assert_eq!(kit.controller.buffered(), 10);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_122_a_shutdown_returns_buffered_messages_and_refuses_questions() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send((0..10).map(|n| message(&name("a"), n)).collect())
        .await;
    kit.until_buffered(10).await;
    kit.shutdown.stop_intake();
    kit.ended().await;
    let depth = kit.depth("a").await;
    assert_eq!((depth.visible, depth.in_flight), (10, 0));
    let refused = kit.next(ask()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(refused.reason(), "shutting_down");
}

#[tokio::test(start_paused = true)]
async fn f_122_a_shutdown_wakes_waiters_and_lets_claims_under_way_finish() {
    let kit = Kit::new().await;
    let begun_at = Instant::now();
    let (waiter, ()) = tokio::join!(kit.next(ask()), async {
        sleep(secs(1)).await;
        kit.shutdown.stop_intake();
    });
    assert_eq!(waiter.unwrap_err().reason(), "shutting_down");
    assert_eq!(begun_at.elapsed(), secs(1));
    kit.ended().await;

    let kit = Kit::new().await;
    kit.status.close_gate();
    kit.send(vec![message(&name("a"), 1)]).await;
    let (got, ()) = tokio::join!(kit.next(ask()), async {
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
async fn a_huge_wait_is_no_panic() {
    let kit = Kit::new().await;
    kit.send(vec![message(&name("a"), 1)]).await;
    let wait = Duration::MAX;
    let got = kit.next(NextWork { wait, ..ask() }).await;
    assert_eq!(got.unwrap().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_is_set_aside_for_a_task_that_is_being_stored() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    let reserve = || kit.controller.clone().reserve(&name("a"), Weight::ONE);
    assert!(reserve().is_none(), "nobody waits");
    let waiting = kit.next(ask());
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
            "not wanted"
        );
        // Stored elsewhere after all: the worker goes on waiting.
        drop(reserve().expect("a worker waits"));
        sleep(ms(1)).await;
        let reserved = reserve().expect("it waits again");
        assert!(reserve().is_none(), "it is set aside once");
        assert_eq!(reserved.worker(), &worker("w"));
        // What arrives meanwhile waits for the next question.
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
    assert_eq!(numbers(&kit.next(ask()).await.unwrap()), [7]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_06_new_tasks_of_one_job_do_not_pass_a_heavy_one_of_another_that_waits_for_weight() {
    let kit = Kit::new().await;
    let both = NextWork {
        jobs: vec![name("a"), name("b")],
        weight_max: 5,
        task_weight_max: 8,
        wait: secs(10),
        ..ask()
    };
    let reserve = || kit.controller.clone().reserve(&name("b"), Weight::ONE);
    let waiting = kit.next(both.clone());
    let stored = async {
        sleep(secs(1)).await;
        drop(reserve().expect("nothing else is there for the worker"));
        sleep(ms(1)).await;
        kit.send(vec![weighing("a", 1, 8)]).await;
        kit.until_buffered(1).await;
        assert!(reserve().is_none(), "it is to have room for the heavy one");
        // Its message goes the usual way, where the number of those that may pass is bounded.
        kit.send(vec![message(&name("b"), 2)]).await;
    };
    let (got, ()) = tokio::join!(waiting, stored);
    assert_eq!(numbers(&got.unwrap()), [2]);
    // A worker that could never run the heavy one is set aside as ever.
    let weak = NextWork {
        task_weight_max: 5,
        ..both.clone()
    };
    let (got, ()) = tokio::join!(kit.next(weak), async {
        sleep(secs(1)).await;
        drop(reserve().expect("the heavy one is for others"));
    });
    assert_eq!(got, Ok(vec![]));
    let strong = NextWork {
        weight_max: 8,
        ..both
    };
    assert_eq!(numbers(&kit.next(strong).await.unwrap()), [1]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_029_a_task_stored_for_a_worker_that_went_away_is_given_back() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    let mut waiting = Box::pin(kit.next(ask()));
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
        .next(NextWork {
            worker: worker("x"),
            ..ask()
        })
        .await
        .unwrap();
    assert_eq!(again.len(), 1, "another worker has it at once");
    kit.stop().await;
}
