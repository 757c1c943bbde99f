//! Runs that begin with their claim.

mod kit;

use dueline_api::{NextWork, Work as _};
use dueline_ports::conformance::queue::message;
use kit::{Kit, ask, ms, name, secs, worker};
use tokio::time::{Instant, sleep, timeout};

fn at_once() -> NextWork {
    NextWork {
        start: true,
        ..ask()
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_begins_at_once_gets_its_runs_started_and_is_told_how_long_it_waited() {
    let kit = Kit::new().await;
    for (ask, started) in [(at_once(), true), (ask(), false)] {
        let asked = Instant::now();
        let (got, ()) = tokio::join!(kit.next(ask), async {
            sleep(secs(3)).await;
            kit.status.close_gate();
            kit.send(vec![message(&name("a"), u64::from(started))])
                .await;
            // The claim takes its time, and that is not part of the wait.
            sleep(secs(2)).await;
            kit.status.open_gate();
        });
        let got = got.unwrap();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].started, started);
        assert!((secs(3)..secs(3) + ms(10)).contains(&got[0].waited));
        assert!(asked.elapsed() >= secs(5));
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_to_a_worker_that_leaves_is_given_back_before_it_leaves() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send(vec![message(&name("a"), 1), message(&name("a"), 2)])
        .await;
    kit.until_buffered(2).await;
    kit.status.close_gate();
    assert!(timeout(ms(10), kit.next(at_once())).await.is_err());
    assert_eq!(kit.status.claim_calls(), 1, "the claim goes on");
    let leaver = worker("w");
    let (left, ()) = tokio::join!(kit.controller.leave(&leaver), async {
        sleep(ms(500)).await;
        assert!(kit.status.left_with().is_empty());
        kit.status.open_gate();
    });
    left.unwrap();
    assert_eq!(kit.status.claims().len(), 2);
    assert_eq!(kit.status.left_with(), [0]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_does_not_keep_a_worker_from_leaving() {
    let kit = Kit::new().await;
    kit.show_interest(ask()).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    kit.until_buffered(1).await;
    kit.status.close_gate();
    assert!(timeout(ms(10), kit.next(at_once())).await.is_err());
    let begun = Instant::now();
    kit.controller.leave(&worker("other")).await.unwrap();
    assert_eq!(begun.elapsed(), ms(0), "nothing is on its way to that one");
    kit.controller.leave(&worker("w")).await.unwrap();
    assert_eq!(begun.elapsed(), secs(2));
    kit.status.open_gate();
    kit.stop().await;
}
