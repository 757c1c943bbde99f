//! Several references in one message: delivered, acknowledged and returned one by one.

use std::time::Duration;

use dueline_domain::TaskRef;
use dueline_ports::{Delivery, QueueError, TaskQueue, conformance::queue::message};
use dueline_queue_sqs::SqsQueue;
use tokio::time::{Instant, sleep};

use crate::support::{
    SOON, VISIBILITY, job, mail_queue, messages, numbers, open, options, receipts, receive, send,
    wait_until,
};

/// Sends `count` references, enough to be packed, and receives them all.
async fn packed(queue: &SqsQueue, count: u64) -> Vec<Delivery> {
    send(queue, messages(&job("mail"), 0..count)).await;
    let got = receive(queue, 500).await;
    assert_eq!(numbers(&got), (0..count).collect::<Vec<_>>());
    got
}

async fn is_empty(queue: &SqsQueue) -> bool {
    let depth = queue.depth(&job("mail")).await.expect("the depth is known");
    depth.visible + depth.in_flight == 0
}

#[tokio::test]
async fn a_burst_takes_one_request_each_to_send_receive_and_delete() {
    let (queue, meter) = mail_queue().await;
    let got = packed(&queue, 250).await;
    queue
        .ack(receipts(&got))
        .await
        .expect("acknowledging works");
    let requests = meter.by_operation();
    for operation in ["send", "receive", "delete"] {
        assert_eq!(requests[operation].queue_requests, 1, "{operation}");
    }
    assert!(is_empty(&queue).await);
}

#[tokio::test]
async fn a_message_stays_until_all_of_it_is_acknowledged() {
    let (queue, _) = mail_queue().await;
    let got = packed(&queue, 30).await;
    let (last, others) = got.split_last().expect("some");
    queue
        .ack(receipts(others))
        .await
        .expect("acknowledging works");
    let depth = queue.depth(&job("mail")).await.expect("the depth is known");
    assert_eq!((depth.visible, depth.in_flight), (0, 1));
    // A repeated acknowledgement has no effect.
    queue
        .ack(receipts(others))
        .await
        .expect("acknowledging works");
    assert!(!is_empty(&queue).await);
    queue
        .ack(vec![last.receipt.clone()])
        .await
        .expect("acknowledging works");
    assert!(is_empty(&queue).await);
}

#[tokio::test]
async fn a_returned_reference_of_a_packed_message_is_delivered_alone_after_its_delay() {
    let (queue, _) = mail_queue().await;
    let got = packed(&queue, 30).await;
    let returned_at = Instant::now();
    let delay = Duration::from_secs(1);
    let nacked = queue.nack(vec![got[4].receipt.clone()], delay).await;
    nacked.expect("returning works");
    let others: Vec<_> = got
        .iter()
        .filter(|d| d.receipt != got[4].receipt)
        .cloned()
        .collect();
    queue
        .ack(receipts(&others))
        .await
        .expect("acknowledging works");
    let again = queue
        .receive(&job("mail"), 10, SOON)
        .await
        .expect("receiving works");
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].task, got[4].task);
    assert_eq!(again[0].received, 2, "the earlier receive is counted");
    let took = returned_at.elapsed();
    assert!(
        took >= Duration::from_millis(850) && took < VISIBILITY,
        "{took:?}"
    );
    queue
        .ack(receipts(&again))
        .await
        .expect("acknowledging works");
    assert!(is_empty(&queue).await);
}

#[tokio::test]
async fn a_packed_message_that_is_returned_whole_stays_packed() {
    let (queue, meter) = mail_queue().await;
    let got = packed(&queue, 200).await;
    let nacked = queue.nack(receipts(&got), Duration::ZERO).await;
    nacked.expect("returning works");
    assert_eq!(
        meter.by_operation()["send"].queue_requests,
        1,
        "nothing is sent again"
    );
    let again = receive(&queue, 500).await;
    assert_eq!(numbers(&again), numbers(&got));
    assert!(again.iter().all(|d| d.received == 2));
}

#[tokio::test]
async fn references_beyond_the_maximum_of_a_receiver_are_left_for_the_next_one() {
    let (queue, meter) = mail_queue().await;
    send(&queue, messages(&job("mail"), 0..100)).await;
    let mut all = receive(&queue, 3).await;
    assert_eq!(all.len(), 3);
    let before = meter.total().queue_requests;
    all.extend(receive(&queue, 4).await);
    assert_eq!(all.len(), 7);
    assert_eq!(
        meter.total().queue_requests,
        before,
        "the references were buffered"
    );
    while all.len() < 100 {
        let more = receive(&queue, 40).await;
        assert!((1..=40).contains(&more.len()));
        all.extend(more);
    }
    assert_eq!(numbers(&all), (0..100).collect::<Vec<_>>());
    queue
        .ack(receipts(&all))
        .await
        .expect("acknowledging works");
    assert!(is_empty(&queue).await);
}

#[tokio::test]
async fn references_that_stay_buffered_too_long_are_returned_to_the_queue() {
    let options = options().await;
    let (here, _) = open(options.clone()).await;
    let (there, _) = open(options).await;
    here.ensure(&job("mail"))
        .await
        .expect("the queue is created");
    send(&here, messages(&job("mail"), 0..50)).await;
    let begun_at = Instant::now();
    let first = receive(&here, 1).await;
    // One message of five references is in flight; the other four are returned before its timeout.
    let mut received = numbers(&first);
    while received.len() < 50 && begun_at.elapsed() < VISIBILITY - Duration::from_secs(1) {
        received.extend(numbers(&receive(&there, 500).await));
    }
    received.sort_unstable();
    assert_eq!(received, (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_dropped_receiver_leaves_its_messages_to_others_at_once() {
    let options = options().await;
    let (here, _) = open(options.clone()).await;
    let (there, _) = open(options).await;
    here.ensure(&job("mail"))
        .await
        .expect("the queue is created");
    let mail = job("mail");
    let dropped = here.receive(&mail, 10, 2 * VISIBILITY);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), dropped)
            .await
            .is_err()
    );
    send(&there, vec![message(&job("mail"), 1)]).await;
    let begun_at = Instant::now();
    let got = there.receive(&job("mail"), 10, 2 * VISIBILITY).await;
    assert_eq!(numbers(&got.expect("receiving works")), [1]);
    assert!(
        begun_at.elapsed() < VISIBILITY / 2,
        "{:?}",
        begun_at.elapsed()
    );
}

#[tokio::test]
async fn extending_one_reference_keeps_its_message_invisible() {
    let (queue, _) = mail_queue().await;
    let got = packed(&queue, 20).await;
    sleep(VISIBILITY / 2).await;
    // Extending one reference of each message would be enough; extending all of them does no harm.
    queue.extend(receipts(&got)).await.expect("extending works");
    let rest = queue.receive(&job("mail"), 500, VISIBILITY * 3 / 4).await;
    assert!(rest.expect("receiving works").is_empty());
    let receive_again = async || receive(&queue, 500).await;
    let mut received = Vec::new();
    wait_until("all of them are received again", async || {
        received.extend(numbers(&receive_again().await));
        received.len() == 20
    })
    .await;
}

#[tokio::test]
async fn a_trace_context_of_any_text_survives() {
    let (queue, _) = mail_queue().await;
    let traces = [
        "00-4bf9-00f0-01",
        "käse ☃ 𝄞 \u{0} \u{7f} \" \\",
        &"x".repeat(70_000),
    ];
    let tasks = traces.iter().zip(0..).map(|(trace, n)| TaskRef {
        trace: Some((*trace).into()),
        ..message(&job("mail"), n)
    });
    let tasks: Vec<_> = tasks.collect();
    send(&queue, tasks.clone()).await;
    let mut got = Vec::new();
    wait_until("all are received", async || {
        got.extend(receive(&queue, 10).await);
        got.len() == 3
    })
    .await;
    got.sort_by_key(|d| d.task.token);
    let got: Vec<_> = got.into_iter().map(|d| d.task).collect();
    assert_eq!(got, tasks);
}

#[tokio::test]
async fn a_reference_too_long_for_a_message_is_refused_alone() {
    let (queue, _) = mail_queue().await;
    let mut tasks = messages(&job("mail"), 0..3);
    tasks[1].trace = Some("x".repeat(1024 * 1024).into());
    let results = queue.send(tasks).await;
    assert!(matches!(&results[1], Err(QueueError::Invalid(_))));
    assert!(results[0].is_ok() && results[2].is_ok());
    let mut got = receive(&queue, 10).await;
    if got.len() < 2 {
        got.extend(receive(&queue, 10).await);
    }
    assert_eq!(numbers(&got), [0, 2]);
}
