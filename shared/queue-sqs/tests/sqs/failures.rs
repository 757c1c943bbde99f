//! Failures, and the errors that the caller gets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_aws::{Meter, SetupError};
use dueline_ports::{QueueError, TaskQueue};
use dueline_queue_sqs::{OpenError, SqsOptions, SqsQueue};
use serde_json::json;
use tokio::{net::TcpListener, time::sleep};

use crate::{
    stub::{Stub, batch, error},
    support::{job, messages, open, receipts, send, wait_until},
};

#[tokio::test]
async fn each_entry_of_a_batch_fails_alone() {
    let stub = Stub::start(|operation, input| {
        let failed = [
            ("1", "InvalidParameterValue", true),
            ("3", "RequestThrottled", true),
            ("4", "InternalError", false),
        ];
        (operation == "SendMessageBatch").then(|| (200, batch(input, &failed)))
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    let results = queue.send(messages(&job("mail"), 0..6)).await;
    assert!(
        matches!(&results[1], Err(QueueError::Invalid(why)) if why.contains("InvalidParameterValue"))
    );
    assert!(matches!(results[3], Err(QueueError::Throttled)));
    assert!(matches!(results[4], Err(QueueError::Unavailable(_))));
    assert!([0, 2, 5].iter().all(|n| results[*n].is_ok()), "{results:?}");
    // When references are packed, only those in failed messages fail.
    let results = queue.send(messages(&job("mail"), 0..20)).await;
    let failed: Vec<_> = (0..20).filter(|n| results[*n].is_err()).collect();
    assert_eq!(failed, [2, 3, 6, 7, 8, 9]);
}

#[tokio::test]
async fn an_entry_without_an_answer_may_have_been_sent() {
    let stub = Stub::start(|operation, _| {
        (operation == "SendMessageBatch").then(|| (200, json!({ "Successful": [], "Failed": [] })))
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    let results = queue.send(messages(&job("mail"), 0..2)).await;
    assert!(
        results
            .iter()
            .all(|r| matches!(r, Err(QueueError::Unavailable(_))))
    );
}

#[tokio::test]
async fn a_failed_deletion_is_retried_once() {
    let stub = Stub::start(|operation, input| match operation {
        "ReceiveMessage" => Some((200, json!({ "Messages": [received(1), received(2)] }))),
        "DeleteMessageBatch" => Some((200, batch(input, &[("1", "InternalError", false)]))),
        _ => None,
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    let got = queue.receive(&job("mail"), 10, Duration::ZERO).await;
    let got = got.expect("receiving works");
    assert_eq!(got.len(), 2);
    queue
        .ack(receipts(&got))
        .await
        .expect("a failed deletion is not an error");
    let sizes = stub.calls("DeleteMessageBatch");
    let sizes: Vec<_> = sizes
        .iter()
        .map(|call| call["Entries"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [2, 1]);
}

fn received(n: u64) -> serde_json::Value {
    let id = format!("00000000-0000-0000-0000-{n:012}");
    let reference =
        json!({ "id": id, "token": format!("{n:016x}"), "priority": 0, "weight": 1, "due": 0 });
    json!({
        "MessageId": id,
        "ReceiptHandle": format!("handle-{n}"),
        "Body": json!({ "v": 1, "job": "mail", "t": [reference] }).to_string(),
        "Attributes": { "ApproximateReceiveCount": "3" },
    })
}

#[tokio::test]
async fn a_queue_whose_name_was_deleted_recently_is_created_in_the_background() {
    let refusals = Arc::new(AtomicUsize::new(2));
    let left = refusals.clone();
    let stub = Stub::start(move |operation, input| match operation {
        "GetQueueUrl" if input["QueueName"] == "dueline-mail" => error(400, "QueueDoesNotExist"),
        "CreateQueue" => {
            let left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            left.is_ok()
                .then(|| error(400, "QueueDeletedRecently").expect("an error"))
        }
        _ => None,
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    // Retries of the caller cause no further calls.
    for _ in 0..5 {
        assert!(matches!(
            queue.ensure(&job("mail")).await,
            Err(QueueError::Throttled)
        ));
    }
    wait_until("the queue is created", async || {
        queue.ensure(&job("mail")).await.is_ok()
    })
    .await;
    assert_eq!(refusals.load(Ordering::SeqCst), 0);
    assert_eq!(stub.calls("CreateQueue").len(), 3);
    send(&queue, messages(&job("mail"), 0..1)).await;
}

#[tokio::test]
async fn a_send_to_a_queue_created_a_moment_ago_is_retried() {
    let mut missing = 0;
    let stub = Stub::start(move |operation, input| match operation {
        "GetQueueUrl" if input["QueueName"] == "dueline-mail" => error(400, "QueueDoesNotExist"),
        "SendMessageBatch" if missing < 2 => {
            missing += 1;
            error(400, "QueueDoesNotExist")
        }
        _ => None,
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    queue
        .ensure(&job("mail"))
        .await
        .expect("the queue is created");
    send(&queue, messages(&job("mail"), 0..1)).await;
    assert_eq!(stub.calls("SendMessageBatch").len(), 3);
}

#[tokio::test]
async fn throttling_and_outages_are_retryable_and_invalid_calls_are_not() {
    let stub = Stub::start(|operation, input| match operation {
        "SendMessageBatch" => error(400, "OverLimit"),
        "ReceiveMessage" => error(403, "AccessDeniedException"),
        "GetQueueAttributes" => error(400, "InvalidAttributeName"),
        "GetQueueUrl" if input["QueueName"] == "dueline-gone" => error(400, "QueueDoesNotExist"),
        _ => None,
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    let mail = job("mail");
    let sent = queue.send(messages(&mail, 0..1)).await;
    assert!(matches!(sent[0], Err(QueueError::Throttled)));
    // Permissions can be fixed while the program runs.
    let received = queue.receive(&mail, 1, Duration::ZERO).await;
    assert!(matches!(received, Err(QueueError::Unavailable(why)) if why.contains("AccessDenied")));
    assert!(matches!(
        queue.depth(&mail).await,
        Err(QueueError::Invalid(_))
    ));
    let depth = queue.depth(&job("gone")).await;
    assert!(matches!(depth, Err(QueueError::NotFound(name)) if name == job("gone")));
}

#[tokio::test]
async fn problems_of_a_deployment_are_reported_at_start() {
    let open = async |options: SqsOptions| {
        let opened = SqsQueue::open(options, Meter::default()).await;
        opened.map(|_| ()).expect_err("it cannot be opened")
    };
    let denying = Stub::start(|_, _| error(403, "InvalidClientTokenId")).await;
    let denied = open(denying.options()).await;
    assert!(matches!(&denied, OpenError::Denied { queue, .. } if queue == "dueline--quarantine"));
    assert!(
        denied.to_string().contains("InvalidClientTokenId"),
        "{denied}"
    );

    let not_sqs = Stub::start(|_, _| Some((404, json!("no such page")))).await;
    let refused = open(not_sqs.options()).await;
    assert!(
        matches!(&refused, OpenError::Refused { at, .. } if *at == not_sqs.url),
        "{refused}"
    );

    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = closed.local_addr().expect("an address").port();
    drop(closed);
    let mut closed_port = not_sqs.options();
    closed_port.aws.endpoint = Some(format!("http://127.0.0.1:{port}"));
    let unreachable = open(closed_port).await;
    assert!(
        matches!(unreachable, OpenError::Unreachable { .. }),
        "{unreachable}"
    );
    assert!(
        unreachable.to_string().contains(&port.to_string()),
        "{unreachable}"
    );

    let mut bad = not_sqs.options();
    bad.aws.endpoint = Some("localhost:4566".into());
    assert!(matches!(
        open(bad.clone()).await,
        OpenError::Setup(SetupError::Endpoint(_))
    ));
    bad.prefix = "-x".into();
    bad.aws = not_sqs.options().aws;
    assert!(matches!(open(bad).await, OpenError::Prefix(_)));
    for wrong in [
        Duration::ZERO,
        Duration::from_millis(1_500),
        Duration::from_secs(43_201),
    ] {
        let options = SqsOptions {
            visibility_timeout: wrong,
            ..not_sqs.options()
        };
        assert_eq!(open(options).await, OpenError::VisibilityTimeout(wrong));
    }
}

#[tokio::test]
async fn a_missing_quarantine_queue_does_not_prevent_the_start() {
    let stub = Stub::start(|operation, _| {
        (operation == "GetQueueUrl").then(|| error(400, "QueueDoesNotExist").expect("an error"))
    })
    .await;
    open(stub.options()).await;
}

#[tokio::test]
async fn a_long_poll_may_exceed_the_timeout_of_a_call() {
    let stub = Stub::start(|_, _| None).await;
    let mut options = stub.options();
    options.aws.timeout = Duration::from_millis(300);
    let (queue, _) = open(options).await;
    let got = queue.receive(&job("mail"), 1, Duration::from_secs(2)).await;
    assert!(got.expect("the poll ends in time").is_empty());
    assert_eq!(stub.calls("ReceiveMessage").len(), 1);
}

#[tokio::test]
async fn requests_end_with_the_queue() {
    let stub = Stub::start(|_, _| None).await;
    let (queue, _) = open(stub.options()).await;
    let wait = Duration::from_secs(1);
    let mail = job("mail");
    let received = tokio::time::timeout(wait / 10, queue.receive(&mail, 1, wait * 20));
    assert!(received.await.is_err());
    drop(queue);
    sleep(wait / 10).await;
    assert_eq!(stub.calls("ReceiveMessage").len(), 1);
}
