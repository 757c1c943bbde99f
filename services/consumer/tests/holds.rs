//! What the store refuses of one job holds up no other.

mod kit;

use dueline_domain::StateKind;
use kit::{Kit, expires_at, ms, name, secs};

#[tokio::test(start_paused = true)]
async fn a_job_whose_writes_are_throttled_holds_up_no_other_and_is_not_stormed() {
    let kit = Kit::new().await;
    kit.start();
    kit.until(ms(500)).await;
    kit.store.heat(Some(name("a")));
    kit.submit_many("a", secs(1), 10).await;
    for second in 2..40 {
        let other = kit.submit("b", secs(second)).await;
        kit.until_state(&other, StateKind::Enqueued, secs(second) + ms(10))
            .await;
    }
    let looks = kit.store.refused() / 10;
    assert!(
        (8..=12).contains(&looks),
        "tried {looks} times in 40 seconds"
    );
    kit.store.heat(None);
    kit.until(secs(46)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 10);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_enqueued_task_that_cannot_be_read_holds_up_nothing() {
    let kit = Kit::new().await;
    let stuck = kit.enqueue_without_messages("a", 20).await;
    kit.start();
    kit.store.heat(Some(name("a")));
    let expired = expires_at(&stuck[0]).since(kit::START);
    for second in 1..20 {
        let due_in = expired + secs(second);
        let other = kit.submit("b", due_in).await;
        kit.until_state(&other, StateKind::Enqueued, due_in + ms(10))
            .await;
    }
    let reads = kit.store.refused();
    assert!((1..60).contains(&reads), "{reads} reads");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_missed_is_made_before_messages_are_sent_again() {
    let kit = Kit::new().await;
    kit.start();
    let task = kit.submit("a", ms(0)).await;
    let task = kit.until_state(&task, StateKind::Enqueued, secs(1)).await;
    let looks_at = expires_at(&task).since(kit::START);
    kit.until(looks_at - ms(100)).await;
    dueline_ports::TaskQueue::remove(&*kit.queue, &name("a"))
        .await
        .unwrap();
    kit.until(looks_at + ms(10)).await;
    assert_eq!(kit.visible("a").await, 1, "in the very look that missed it");
    kit.stop().await;
}
