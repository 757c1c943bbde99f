//! Runs that start with their claim.

mod kit;

use dueline_api::{Controller as _, PollRequest};
use dueline_ports::conformance::queue::message;
use kit::{Kit, ms, name, request, secs, worker};
use tokio::time::{Instant, sleep, timeout};

fn starting() -> PollRequest {
    PollRequest {
        start: true,
        ..request()
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_with_start_gets_started_runs_and_how_long_it_waited() {
    let kit = Kit::new().await;
    for (request, started) in [(starting(), true), (request(), false)] {
        let polled_at = Instant::now();
        let (got, ()) = tokio::join!(kit.poll(request), async {
            sleep(secs(3)).await;
            kit.status.close_gate();
            kit.send(vec![message(&name("a"), u64::from(started))])
                .await;
            // The time of the claim is not part of the wait.
            sleep(secs(2)).await;
            kit.status.open_gate();
        });
        let got = got.unwrap();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].started, started);
        assert!((secs(3)..secs(3) + ms(10)).contains(&got[0].waited));
        assert!(polled_at.elapsed() >= secs(5));
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn started_runs_in_flight_to_a_worker_are_abandoned_before_it_is_deregistered() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    kit.send(vec![message(&name("a"), 1), message(&name("a"), 2)])
        .await;
    kit.until_buffered(2).await;
    kit.status.close_gate();
    assert!(timeout(ms(10), kit.poll(starting())).await.is_err());
    assert_eq!(kit.status.claim_calls(), 1, "the claim goes on");
    let gone = worker("w");
    let (deregistered, ()) = tokio::join!(kit.controller.deregister_worker(&gone), async {
        sleep(ms(500)).await;
        assert!(kit.status.owned_at_deregistrations().is_empty());
        kit.status.open_gate();
    });
    deregistered.unwrap();
    assert_eq!(kit.status.claims().len(), 2);
    assert_eq!(kit.status.owned_at_deregistrations(), [0]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_does_not_block_a_deregistration() {
    let kit = Kit::new().await;
    kit.subscribe(request()).await;
    kit.send(vec![message(&name("a"), 1)]).await;
    kit.until_buffered(1).await;
    kit.status.close_gate();
    assert!(timeout(ms(10), kit.poll(starting())).await.is_err());
    let begun = Instant::now();
    kit.controller
        .deregister_worker(&worker("other"))
        .await
        .unwrap();
    assert_eq!(begun.elapsed(), ms(0), "nothing is in flight to this one");
    kit.controller
        .deregister_worker(&worker("w"))
        .await
        .unwrap();
    assert_eq!(begun.elapsed(), secs(2));
    kit.status.open_gate();
    kit.stop().await;
}
