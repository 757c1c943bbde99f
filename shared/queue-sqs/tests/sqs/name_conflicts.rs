//! Deployments in one account that need the same queue name: job `x-y` under a prefix, and job `y` under that prefix
//! with `-x` appended.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_ports::{QueueError, TaskQueue};
use dueline_queue_sqs::{SqsOptions, SqsQueue};
use serde_json::json;
use tokio::time;

use crate::{
    stub::{Stub, error},
    support::{client, job, messages, numbers, open, options, send, url, wait_until},
};

/// Two deployments: job `y` of the second one and job `x-y` of the first one need the same queue name.
async fn conflicting_deployments() -> (Arc<SqsQueue>, SqsOptions, Arc<SqsQueue>, SqsOptions) {
    let first = options().await;
    let mut second = first.clone();
    second.prefix.push_str("-x");
    let (one, _) = open(first.clone()).await;
    let (other, _) = open(second.clone()).await;
    assert_eq!(one.queue_names(&job("x-y")), other.queue_names(&job("y")));
    (one, first, other, second)
}

/// The error names the queue and its owner, and is not retryable.
#[track_caller]
fn assert_conflict(error: &QueueError, queue: &str, owner: &str) {
    assert!(!error.is_retryable(), "{error:?}");
    let QueueError::Invalid(why) = error else {
        panic!("{error:?}");
    };
    let (queue, owner) = (format!("'{queue}'"), format!("prefix '{owner}'"));
    assert!(why.contains(&queue) && why.contains(&owner), "{why}");
}

#[tokio::test]
async fn a_queue_of_another_deployment_is_neither_used_nor_changed_nor_removed() {
    let (one, _, other, second) = conflicting_deployments().await;
    let (own_job, other_job) = (job("x-y"), job("y"));
    let name = other.queue_names(&other_job).remove(0);
    other
        .ensure(&other_job)
        .await
        .expect("the queue is created");
    send(&other, messages(&other_job, 0..1)).await;

    let is_conflict = |error: &QueueError| assert_conflict(error, &name, &second.prefix);
    is_conflict(
        &one.ensure(&own_job)
            .await
            .expect_err("another deployment owns it"),
    );
    let sent = one.send(messages(&own_job, 5..6)).await.remove(0);
    is_conflict(&sent.expect_err("another deployment owns it"));
    let received = one.receive(&own_job, 1, Duration::from_secs(1)).await;
    is_conflict(&received.expect_err("another deployment owns it"));
    is_conflict(
        &one.depth(&own_job)
            .await
            .expect_err("another deployment owns it"),
    );
    is_conflict(
        &one.fix(&own_job)
            .await
            .expect_err("another deployment owns it"),
    );
    let info = one.describe(&own_job).await.expect("it can be described");
    assert_eq!(info[0].other_owner(), Some(second.prefix.as_str()));
    one.remove(&own_job)
        .await
        .expect("this deployment has no such queue");

    let info = other
        .describe(&other_job)
        .await
        .expect("it answers")
        .remove(0);
    assert_eq!(info.other_owner(), None);
    assert_eq!(info.tags["dueline:prefix"], second.prefix);
    assert_eq!(info.tags["dueline:job"], "y");
    let got = other.receive(&other_job, 10, Duration::from_secs(1)).await;
    assert_eq!(numbers(&got.expect("receiving works")), [0]);
}

#[tokio::test]
async fn the_deployment_with_the_shorter_prefix_may_be_the_first() {
    let (one, first, other, _) = conflicting_deployments().await;
    one.ensure(&job("x-y")).await.expect("the queue is created");
    let name = one.queue_names(&job("x-y")).remove(0);
    let error = other
        .ensure(&job("y"))
        .await
        .expect_err("another deployment owns it");
    assert_conflict(&error, &name, &first.prefix);
    // Its other jobs can have queues.
    other.ensure(&job("z")).await.expect("the queue is created");
}

#[tokio::test]
async fn a_queue_without_the_tag_is_used() {
    let options = options().await;
    let (queue, _) = open(options.clone()).await;
    let mail = job("mail");
    let client = client().await;
    let name = queue.queue_names(&mail).remove(0);
    let by_hand = client.create_queue().queue_name(&name);
    by_hand.send().await.expect("the queue is created");
    queue.ensure(&mail).await.expect("it is used");
    send(&queue, messages(&mail, 0..1)).await;
    queue.fix(&mail).await.expect("it is fixed");
    let tags = client
        .list_queue_tags()
        .queue_url(url(&client, &name).await);
    let tags = tags.send().await.expect("it answers").tags;
    let tags = tags.expect("it has tags");
    assert_eq!(tags["dueline:prefix"], options.prefix);
}

#[tokio::test]
async fn a_quarantine_queue_of_another_deployment_is_refused() {
    let stub = Stub::start(|operation, _| {
        let tags = json!({ "Tags": { "dueline:prefix": "other" } });
        (operation == "ListQueueTags").then_some((200, tags))
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    let error = queue
        .ensure_quarantine()
        .await
        .expect_err("another deployment owns it");
    assert_conflict(&error, "dueline--quarantine", "other");
    assert!(queue.fix_quarantine().await.is_err());
    assert!(stub.calls("TagQueue").is_empty());
}

#[tokio::test]
async fn tags_are_read_once_per_queue_and_never_of_a_queue_created_here() {
    let stub = Stub::start(|operation, input| match operation {
        "GetQueueUrl" if input["QueueName"] == "dueline-new" => error(400, "QueueDoesNotExist"),
        _ => None,
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    for _ in 0..3 {
        for job in [job("mail"), job("new")] {
            queue.ensure(&job).await.expect("there is a queue");
            send(&queue, messages(&job, 0..3)).await;
            queue.depth(&job).await.expect("it answers");
        }
    }
    let reads = stub.calls("ListQueueTags");
    assert_eq!(reads.len(), 1, "{reads:?}");
    let url = reads[0]["QueueUrl"].as_str().unwrap_or_default();
    assert!(url.ends_with("/dueline-mail"), "{url}");
}

#[tokio::test]
async fn the_owner_of_a_foreign_queue_is_checked_again_after_a_minute() {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let stub = Stub::start(move |operation, _| {
        let is_first = || count.fetch_add(1, Ordering::SeqCst) == 0;
        let owner = |is_first| if is_first { "other" } else { "dueline" };
        (operation == "ListQueueTags").then(|| {
            let tags = json!({ "dueline:prefix": owner(is_first()) });
            (200, json!({ "Tags": tags }))
        })
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    for _ in 0..5 {
        let error = queue
            .ensure(&job("mail"))
            .await
            .expect_err("another deployment owns it");
        assert_conflict(&error, "dueline-mail", "other");
        let sent = queue.send(messages(&job("mail"), 0..1)).await;
        assert!(sent[0].is_err());
    }
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    time::pause();
    time::advance(Duration::from_secs(61)).await;
    time::resume();
    queue
        .ensure(&job("mail"))
        .await
        .expect("this deployment owns it now");
    assert_eq!(reads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_role_that_may_not_read_tags_uses_the_queue_and_reads_them_once() {
    let stub = Stub::start(|operation, _| match operation {
        "ListQueueTags" => error(403, "AccessDeniedException"),
        _ => None,
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    for _ in 0..3 {
        queue.ensure(&job("mail")).await.expect("there is a queue");
        send(&queue, messages(&job("mail"), 0..1)).await;
    }
    assert_eq!(stub.calls("ListQueueTags").len(), 1);
}

#[tokio::test]
async fn no_queue_is_used_before_its_tags_were_read() {
    let stub = Stub::start({
        let mut refusals = 2;
        move |operation, _| match operation {
            "ListQueueTags" if refusals > 0 => {
                refusals -= 1;
                error(400, "OverLimit")
            }
            _ => None,
        }
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    wait_until("the queue is used", async || {
        let ensured = queue.ensure(&job("mail")).await;
        if let Err(error) = &ensured {
            assert!(error.is_retryable(), "{error:?}");
        }
        ensured.is_ok()
    })
    .await;
    assert_eq!(stub.calls("ListQueueTags").len(), 3);
}
