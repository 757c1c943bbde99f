//! Throttled calls for one job delay no other job.

mod kit;

use dueline_domain::StateKind;
use kit::{Kit, expires_at, ms, name, secs};

#[tokio::test(start_paused = true)]
async fn a_job_with_throttled_writes_delays_no_other_and_is_retried_with_a_backoff() {
    let kit = Kit::new().await;
    kit.start();
    kit.run_until(ms(500)).await;
    kit.store.throttle_job(Some(name("a")));
    kit.submit_many("a", secs(1), 10).await;
    for second in 2..40 {
        let other = kit.submit("b", secs(second)).await;
        kit.wait_for_state(&other, StateKind::Enqueued, secs(second) + ms(10))
            .await;
    }
    let scans = kit.store.throttled_calls() / 10;
    assert!((8..=12).contains(&scans), "{scans} attempts in 40 seconds");
    kit.store.throttle_job(None);
    kit.run_until(secs(46)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 10);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_enqueued_task_that_cannot_be_read_delays_no_other_task() {
    let kit = Kit::new().await;
    let stuck = kit.enqueue_without_messages("a", 20).await;
    kit.start();
    kit.store.throttle_job(Some(name("a")));
    let expired = expires_at(&stuck[0]).since(kit::START);
    for second in 1..20 {
        let due_in = expired + secs(second);
        let other = kit.submit("b", due_in).await;
        kit.wait_for_state(&other, StateKind::Enqueued, due_in + ms(10))
            .await;
    }
    let reads = kit.store.throttled_calls();
    assert!((1..60).contains(&reads), "{reads} reads");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_queue_is_created_before_messages_are_sent_again() {
    let kit = Kit::new().await;
    kit.start();
    let task = kit.submit("a", ms(0)).await;
    let task = kit
        .wait_for_state(&task, StateKind::Enqueued, secs(1))
        .await;
    let expires_in = expires_at(&task).since(kit::START);
    kit.run_until(expires_in - ms(100)).await;
    dueline_ports::TaskQueue::remove(&*kit.queue, &name("a"))
        .await
        .unwrap();
    kit.run_until(expires_in + ms(10)).await;
    assert_eq!(
        kit.visible("a").await,
        1,
        "in the scan that found the queue missing"
    );
    kit.stop().await;
}
