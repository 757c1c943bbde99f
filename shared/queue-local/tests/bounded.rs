//! What a bounded queue in one process does beyond the suite: it refuses, pushes out, and asks for more.

use std::{sync::Arc, time::Duration};

use dueline_domain::{JobName, Priority, TaskRef};
use dueline_ports::{Delivery, QueueError, Starving, TaskQueue, conformance::queue::message};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use tokio::time::{Instant, timeout};

const MOMENT: Duration = Duration::from_millis(1);

fn job() -> JobName {
    JobName::parse("mail").unwrap()
}

async fn queue_of(capacity: usize) -> Arc<LocalQueue> {
    let queue = LocalQueue::new(LocalQueueConfig::with_capacity(capacity));
    queue.ensure(&job()).await.unwrap();
    queue
}

/// A queue that has been filled from an empty store, so that it lacks nothing.
async fn sated(capacity: usize) -> Arc<LocalQueue> {
    let queue = queue_of(capacity).await;
    let starving = queue.starving().await;
    queue.refilled(&starving[0], true);
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

async fn starving_now(queue: &LocalQueue) -> Option<Vec<Starving>> {
    timeout(MOMENT, queue.starving()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_what_is_not_more_urgent() {
    let queue = sated(4).await;
    let results = send(&queue, (0..5).map(|n| ranked(n, 0)).collect()).await;
    assert!(results[..4].iter().all(Result::is_ok));
    assert!(matches!(&results[4], Err(QueueError::Full(full)) if *full == job()));
    let lower = send(&queue, vec![ranked(9, -1)]).await;
    assert!(lower[0].is_err());
    assert_eq!(queue.depth(&job()).await.unwrap().visible, 4);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_message_pushes_out_the_least_urgent_one() {
    let queue = sated(3).await;
    send(&queue, vec![ranked(1, 0), ranked(2, -5), ranked(3, 5)]).await;
    assert!(send(&queue, vec![ranked(4, 1)]).await[0].is_ok());
    let order: Vec<_> = receive(&queue, 9)
        .await
        .iter()
        .map(|d| d.task.token.get() - 1)
        .collect();
    assert_eq!(order, [3, 4, 1]);
    // What was pushed out may be sent again.
    let queue = sated(1).await;
    send(&queue, vec![ranked(1, 0), ranked(2, 1)]).await;
    ack(&queue, receive(&queue, 1).await).await;
    assert!(send(&queue, vec![ranked(1, 0)]).await[0].is_ok());
    assert_eq!(receive(&queue, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_in_flight_count_but_are_never_pushed_out() {
    let queue = sated(2).await;
    send(&queue, vec![ranked(1, 0), ranked(2, 0)]).await;
    let taken = receive(&queue, 2).await;
    assert!(send(&queue, vec![ranked(3, 100)]).await[0].is_err());
    // A message that is in flight counts as sent although the queue is full.
    assert!(send(&queue, vec![ranked(1, 0)]).await[0].is_ok());
    ack(&queue, taken).await;
    assert!(send(&queue, vec![ranked(3, 100)]).await[0].is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_new_queue_asks_for_what_an_earlier_process_had_handed_on() {
    let queue = queue_of(8).await;
    let starving = queue.starving().await;
    let [only] = &starving[..] else {
        panic!("{starving:?}")
    };
    assert_eq!((&only.job, only.room), (&job(), 8));
    assert_eq!(starving_now(&queue).await, None, "told twice");
    queue.refilled(only, true);
    assert_eq!(starving_now(&queue).await, None, "it lacks nothing");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_refused_asks_for_more_once_it_has_run_low() {
    let queue = sated(8).await;
    send(&queue, (0..9).map(|n| ranked(n, 0)).collect()).await;
    assert_eq!(starving_now(&queue).await, None, "there is no room");
    let waiting = queue.starving();
    let (starving, ()) = tokio::join!(waiting, async {
        ack(&queue, receive(&queue, 5).await).await;
    });
    assert_eq!(starving[0].room, 5);
    // As much as there was room for came; the store has more.
    send(&queue, (10..15).map(|n| ranked(n, 0)).collect()).await;
    queue.refilled(&starving[0], false);
    assert_eq!(starving_now(&queue).await, None, "it is full");
    ack(&queue, receive(&queue, 5).await).await;
    assert!(starving_now(&queue).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_was_filled_in_vain_asks_again_as_soon_as_it_has_refused() {
    let queue = sated(2).await;
    let begun_at = Instant::now();
    let (starving, ()) = tokio::join!(queue.starving(), async {
        send(&queue, (0..3).map(|n| ranked(n, 0)).collect()).await;
        ack(&queue, receive(&queue, 2).await).await;
    });
    assert_eq!(starving[0].room, 2);
    assert_eq!(begun_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_during_the_refill_is_not_forgotten() {
    let queue = queue_of(2).await;
    let starving = queue.starving().await;
    send(&queue, (0..3).map(|n| ranked(n, 0)).collect()).await;
    queue.refilled(&starving[0], true);
    ack(&queue, receive(&queue, 2).await).await;
    assert!(starving_now(&queue).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_refill_that_brings_nothing_new_is_not_repeated_at_once() {
    let queue = queue_of(8).await;
    let told_at = Instant::now();
    for _ in 0..3 {
        let starving = queue.starving().await;
        queue.refilled(&starving[0], false);
    }
    assert!(told_at.elapsed() >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_dies_after_the_answer_is_replaced() {
    let queue = queue_of(8).await;
    let told_at = Instant::now();
    let first = queue.starving().await;
    let second = queue.starving().await;
    assert_eq!(first, second);
    assert_eq!(told_at.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_question_loses_no_answer() {
    let queue = sated(8).await;
    assert_eq!(starving_now(&queue).await, None);
    let mut asked = Box::pin(queue.starving());
    std::future::poll_fn(|context| {
        assert!(asked.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    // The answer is on its way when whoever asked goes away.
    let other = JobName::parse("other").unwrap();
    queue.ensure(&other).await.unwrap();
    drop(asked);
    assert_eq!(starving_now(&queue).await.unwrap()[0].job, other);
}

#[tokio::test(start_paused = true)]
async fn removing_a_queue_wakes_its_receivers_and_making_it_again_starts_empty() {
    let queue = sated(8).await;
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
        "a receipt of the old queue counts"
    );
}

#[tokio::test(start_paused = true)]
async fn a_huge_wait_or_delay_is_no_panic() {
    let queue = sated(8).await;
    send(&queue, vec![ranked(1, 0)]).await;
    let taken = queue.receive(&job(), 1, Duration::MAX).await.unwrap();
    let receipts = vec![taken[0].receipt.clone()];
    queue.nack(receipts, Duration::MAX).await.unwrap();
    assert_eq!(queue.depth(&job()).await.unwrap().in_flight, 1);
}
