//! What a bounded local queue does beyond the suite: it refuses and evicts messages, and reports a refill demand.

use std::{sync::Arc, time::Duration};

use dueline_domain::{JobName, Priority, TaskRef};
use dueline_ports::{Delivery, QueueError, RefillDemand, TaskQueue, conformance::queue::message};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use tokio::time::{Instant, timeout};

const SHORT_WAIT: Duration = Duration::from_millis(1);

fn job() -> JobName {
    JobName::parse("mail").unwrap()
}

async fn queue_of(capacity: usize) -> Arc<LocalQueue> {
    let queue = LocalQueue::new(LocalQueueConfig::with_capacity(capacity));
    queue.ensure(&job()).await.unwrap();
    queue
}

/// A queue that was refilled from an empty store, so that it lacks no message.
async fn refilled_queue(capacity: usize) -> Arc<LocalQueue> {
    let queue = queue_of(capacity).await;
    let refill_demand = queue.refill_demand().await;
    queue.refilled(&refill_demand[0], true);
    queue
}

fn ranked(n: u64, priority: i64) -> TaskRef {
    TaskRef {
        priority: Priority::new(priority).unwrap(),
        ..message(&job(), n)
    }
}

async fn send(queue: &LocalQueue, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
    queue.send(messages).await
}

async fn receive(queue: &LocalQueue, max: usize) -> Vec<Delivery> {
    queue.receive(&job(), max, Duration::ZERO).await.unwrap()
}

async fn ack(queue: &LocalQueue, deliveries: Vec<Delivery>) {
    let receipts = deliveries.into_iter().map(|d| d.receipt).collect();
    queue.ack(receipts).await.unwrap();
}

async fn refill_demand_now(queue: &LocalQueue) -> Option<Vec<RefillDemand>> {
    timeout(SHORT_WAIT, queue.refill_demand()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_messages_that_are_not_more_urgent() {
    let queue = refilled_queue(4).await;
    let results = send(&queue, (0..5).map(|n| ranked(n, 0)).collect()).await;
    assert!(results[..4].iter().all(Result::is_ok));
    assert!(matches!(&results[4], Err(QueueError::Full(full)) if *full == job()));
    let lower = send(&queue, vec![ranked(9, -1)]).await;
    assert!(lower[0].is_err());
    assert_eq!(queue.depth(&job()).await.unwrap().visible, 4);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_message_evicts_the_least_urgent_one() {
    let queue = refilled_queue(3).await;
    send(&queue, vec![ranked(1, 0), ranked(2, -5), ranked(3, 5)]).await;
    assert!(send(&queue, vec![ranked(4, 1)]).await[0].is_ok());
    let order: Vec<_> = receive(&queue, 9)
        .await
        .iter()
        .map(|d| d.task.token.get() - 1)
        .collect();
    assert_eq!(order, [3, 4, 1]);
    // A message that was evicted may be sent again.
    let queue = refilled_queue(1).await;
    send(&queue, vec![ranked(1, 0), ranked(2, 1)]).await;
    ack(&queue, receive(&queue, 1).await).await;
    assert!(send(&queue, vec![ranked(1, 0)]).await[0].is_ok());
    assert_eq!(receive(&queue, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_in_flight_count_but_are_never_evicted() {
    let queue = refilled_queue(2).await;
    send(&queue, vec![ranked(1, 0), ranked(2, 0)]).await;
    let deliveries = receive(&queue, 2).await;
    assert!(send(&queue, vec![ranked(3, 100)]).await[0].is_err());
    // A message that is in flight counts as sent although the queue is full.
    assert!(send(&queue, vec![ranked(1, 0)]).await[0].is_ok());
    ack(&queue, deliveries).await;
    assert!(send(&queue, vec![ranked(3, 100)]).await[0].is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_new_queue_demands_messages_that_an_earlier_process_had_enqueued() {
    let queue = queue_of(8).await;
    let refill_demand = queue.refill_demand().await;
    let [only] = &refill_demand[..] else {
        panic!("{refill_demand:?}")
    };
    assert_eq!((&only.job, only.room), (&job(), 8));
    assert_eq!(refill_demand_now(&queue).await, None, "reported twice");
    queue.refilled(only, true);
    assert_eq!(
        refill_demand_now(&queue).await,
        None,
        "the queue lacks no message"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_refused_messages_reports_a_demand_once_it_has_run_low() {
    let queue = refilled_queue(8).await;
    send(&queue, (0..9).map(|n| ranked(n, 0)).collect()).await;
    assert_eq!(refill_demand_now(&queue).await, None, "there is no room");
    let waiting = queue.refill_demand();
    let (refill_demand, ()) = tokio::join!(waiting, async {
        ack(&queue, receive(&queue, 5).await).await;
    });
    assert_eq!(refill_demand[0].room, 5);
    // The refill sends as many messages as there was room for; the store has more.
    send(&queue, (10..15).map(|n| ranked(n, 0)).collect()).await;
    queue.refilled(&refill_demand[0], false);
    assert_eq!(refill_demand_now(&queue).await, None, "the queue is full");
    ack(&queue, receive(&queue, 5).await).await;
    assert!(refill_demand_now(&queue).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_complete_refill_is_reported_without_a_pause() {
    let queue = refilled_queue(2).await;
    let begun_at = Instant::now();
    let (refill_demand, ()) = tokio::join!(queue.refill_demand(), async {
        send(&queue, (0..3).map(|n| ranked(n, 0)).collect()).await;
        ack(&queue, receive(&queue, 2).await).await;
    });
    assert_eq!(refill_demand[0].room, 2);
    assert_eq!(begun_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_during_the_refill_is_not_forgotten() {
    let queue = queue_of(2).await;
    let refill_demand = queue.refill_demand().await;
    send(&queue, (0..3).map(|n| ranked(n, 0)).collect()).await;
    queue.refilled(&refill_demand[0], true);
    ack(&queue, receive(&queue, 2).await).await;
    assert!(refill_demand_now(&queue).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_refill_that_adds_no_message_is_not_repeated_at_once() {
    let queue = queue_of(8).await;
    let reported_at = Instant::now();
    for _ in 0..3 {
        let refill_demand = queue.refill_demand().await;
        queue.refilled(&refill_demand[0], false);
    }
    assert!(reported_at.elapsed() >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_demand_that_is_not_refilled_is_reported_again() {
    let queue = queue_of(8).await;
    let reported_at = Instant::now();
    let first = queue.refill_demand().await;
    let second = queue.refill_demand().await;
    assert_eq!(first, second);
    assert_eq!(reported_at.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_loses_no_demand() {
    let queue = refilled_queue(8).await;
    assert_eq!(refill_demand_now(&queue).await, None);
    let mut dropped = Box::pin(queue.refill_demand());
    std::future::poll_fn(|context| {
        assert!(dropped.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    // A demand arises, and the pending call is dropped before it answers.
    let other = JobName::parse("other").unwrap();
    queue.ensure(&other).await.unwrap();
    drop(dropped);
    assert_eq!(refill_demand_now(&queue).await.unwrap()[0].job, other);
}

#[tokio::test(start_paused = true)]
async fn removing_a_queue_wakes_its_receivers_and_a_new_one_starts_empty() {
    let queue = refilled_queue(8).await;
    send(&queue, vec![ranked(1, 0)]).await;
    let old = receive(&queue, 1).await;
    let begun_at = Instant::now();
    let (job, wait) = (job(), Duration::from_secs(60));
    let waiting = queue.receive(&job, 1, wait);
    let (woken, removed) = tokio::join!(waiting, queue.remove(&job));
    removed.unwrap();
    assert!(matches!(woken, Err(QueueError::NotFound(_))));
    assert_eq!(begun_at.elapsed(), Duration::ZERO);
    queue.ensure(&job).await.unwrap();
    send(&queue, vec![ranked(2, 0)]).await;
    ack(&queue, old).await;
    assert_eq!(
        receive(&queue, 9).await.len(),
        1,
        "a receipt of the old queue deletes nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_huge_wait_or_delay_does_not_panic() {
    let queue = refilled_queue(8).await;
    send(&queue, vec![ranked(1, 0)]).await;
    let deliveries = queue.receive(&job(), 1, Duration::MAX).await.unwrap();
    let receipts = vec![deliveries[0].receipt.clone()];
    queue.nack(receipts, Duration::MAX).await.unwrap();
    assert_eq!(queue.depth(&job()).await.unwrap().in_flight, 1);
}
