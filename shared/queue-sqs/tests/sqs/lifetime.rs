//! Queues that are created, found, deleted and created again.

use std::time::Duration;

use dueline_aws::Meter;
use dueline_domain::Priority;
use dueline_ports::{QueueError, TaskQueue, conformance::queue::message};
use dueline_queue_sqs::{SqsOptions, SqsQueue};

use crate::support::{
    client, job, mail_queue, messages, numbers, open, options, receipts, receive, send, url,
    wait_until,
};

#[tokio::test]
async fn a_queue_deleted_by_another_process_is_not_found_and_can_be_created_again() {
    let (queue, _) = mail_queue().await;
    let mail = job("mail");
    send(&queue, messages(&mail, 0..2)).await;
    let got = receive(&queue, 10).await;
    // Wait until the queue no longer counts as recently created, when it may be unknown to servers of SQS.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let client = client().await;
    let url = url(&client, &queue.queue_names(&mail)[0]).await;
    let deleted = client.delete_queue().queue_url(url).send().await;
    deleted.expect("it is deleted");

    let is_gone = |error: &QueueError| matches!(error, QueueError::NotFound(name) if *name == mail);
    let sent = queue.send(messages(&mail, 2..3)).await;
    assert!(sent[0].as_ref().is_err_and(is_gone), "{sent:?}");
    let received = queue.receive(&mail, 1, Duration::ZERO).await;
    assert!(received.as_ref().is_err_and(is_gone), "{received:?}");
    // Receipts of a deleted queue are not an error.
    queue
        .ack(receipts(&got[..1]))
        .await
        .expect("nothing to delete");
    queue
        .nack(receipts(&got[1..]), Duration::ZERO)
        .await
        .expect("nothing to return");
    queue
        .extend(receipts(&got))
        .await
        .expect("nothing to extend");

    wait_until("the queue is created again", async || {
        queue.ensure(&mail).await.is_ok()
    })
    .await;
    send(&queue, messages(&mail, 3..4)).await;
    assert_eq!(numbers(&receive(&queue, 10).await), [3]);
}

#[tokio::test]
async fn f_121_each_job_has_its_own_queue_that_is_deleted_with_the_job() {
    let options = options().await;
    let name = |job: &str| format!("{}-{job}", options.prefix);
    let (queue, _) = open(options.clone()).await;
    let (mail, post) = (job("mail"), job("post"));
    for job in [&mail, &post] {
        queue.ensure(job).await.expect("the queue is created");
    }
    let listed = queue.list().await.expect("it answers");
    assert_eq!(listed, [name("mail"), name("post")]);
    // A backlog in one queue does not delay another queue.
    send(&queue, messages(&mail, 0..2_000)).await;
    send(&queue, messages(&post, 7..8)).await;
    let got = queue.receive(&post, 10, Duration::from_secs(1)).await;
    assert_eq!(numbers(&got.expect("receiving works")), [7]);
    queue.remove(&mail).await.expect("removing works");
    assert_eq!(queue.list().await.expect("it answers"), [name("post")]);
}

#[tokio::test]
async fn f_143_an_existing_client_may_be_shared() {
    let (client, options) = (client().await, options().await);
    let open = || SqsQueue::from_client(client.clone(), options.clone(), Meter::default());
    let (one, other) = (
        open().expect("valid options"),
        open().expect("valid options"),
    );
    one.ensure(&job("mail"))
        .await
        .expect("the queue is created");
    send(&one, messages(&job("mail"), 0..1)).await;
    drop(one);
    assert_eq!(numbers(&receive(&other, 1).await), [0]);
    drop(other);
    url(&client, &format!("{}-mail", options.prefix)).await;
}

#[tokio::test]
async fn a_queue_that_another_process_created_is_found_at_first_use() {
    let options = options().await;
    let (creator, _) = open(options.clone()).await;
    creator
        .ensure(&job("mail"))
        .await
        .expect("the queue is created");
    let (user, meter) = open(options).await;
    for n in 0..3 {
        send(&user, vec![message(&job("mail"), n)]).await;
    }
    let lookups = meter.by_operation()["queue"].queue_requests;
    assert_eq!(
        lookups, 3,
        "one at the start, one for the queue, one for its tags"
    );
    user.ensure(&job("mail")).await.expect("the queue exists");
    assert_eq!(meter.by_operation()["queue"].queue_requests, lookups);
}

#[tokio::test]
async fn a_long_job_name_has_its_own_queue() {
    let mut options = options().await;
    options.prefix.push_str("-a-rather-long-one");
    let (queue, _) = open(options).await;
    let [a, b] = ["a", "b"].map(|end| job(&format!("{}{end}", "x".repeat(63))));
    for (n, job) in [&a, &b].into_iter().enumerate() {
        queue.ensure(job).await.expect("the queue is created");
        send(&queue, vec![message(job, n as u64)]).await;
    }
    assert_eq!(queue.list().await.expect("it answers").len(), 2);
    let got = queue.receive(&b, 10, Duration::from_secs(1)).await;
    assert_eq!(numbers(&got.expect("receiving works")), [1]);
}

#[tokio::test]
async fn with_priority_queues_urgent_tasks_overtake_any_backlog() {
    let (queue, _) = open(SqsOptions {
        priority_queues: true,
        ..options().await
    })
    .await;
    let mail = job("mail");
    queue.ensure(&mail).await.expect("the queues are created");
    assert_eq!(queue.list().await.expect("it answers").len(), 5);
    let ranked = |n: u64, priority: i64| dueline_domain::TaskRef {
        priority: Priority::new(priority).expect("a legal priority"),
        ..message(&mail, n)
    };
    // At most ten references per request, so that none are packed.
    let backlog: Vec<_> = (0..40).map(|n| ranked(n, -100)).collect();
    for some in backlog.chunks(10) {
        send(&queue, some.to_vec()).await;
    }
    send(
        &queue,
        vec![ranked(100, 500), ranked(101, 0), ranked(102, 60)],
    )
    .await;
    let mut order = Vec::new();
    wait_until("the urgent tasks are received", async || {
        let got = queue.receive(&mail, 1, Duration::ZERO).await;
        order.extend(numbers(&got.expect("receiving works")));
        order.iter().filter(|n| **n >= 100).count() == 3
    })
    .await;
    assert!(
        order.len() <= 13,
        "only messages received in the same poll precede them: {order:?}"
    );
    let urgent: Vec<_> = order.into_iter().filter(|n| *n >= 100).collect();
    assert_eq!(urgent, [100, 102, 101]);
    queue.remove(&mail).await.expect("removing works");
    assert!(queue.list().await.expect("it answers").is_empty());
}
