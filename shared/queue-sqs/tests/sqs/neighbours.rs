//! Deployments in one account whose names meet: job `x-y` under a prefix, and job `y` under that prefix and `-x`.

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

/// Two deployments: the queue of job `y` of the second one has the name that job `x-y` of the first one needs.
async fn neighbours() -> (Arc<SqsQueue>, SqsOptions, Arc<SqsQueue>, SqsOptions) {
    let first = options().await;
    let mut second = first.clone();
    second.prefix.push_str("-x");
    let (one, _) = open(first.clone()).await;
    let (other, _) = open(second.clone()).await;
    assert_eq!(one.queue_names(&job("x-y")), other.queue_names(&job("y")));
    (one, first, other, second)
}

/// It names the queue and whose it is, and nobody tries it again.
#[track_caller]
fn assert_taken(error: &QueueError, queue: &str, owner: &str) {
    assert!(!error.is_retryable(), "{error:?}");
    let QueueError::Invalid(why) = error else {
        panic!("{error:?}");
    };
    let (queue, owner) = (format!("'{queue}'"), format!("prefix '{owner}'"));
    assert!(why.contains(&queue) && why.contains(&owner), "{why}");
}

#[tokio::test]
async fn a_queue_of_another_deployment_is_neither_used_nor_changed_nor_removed() {
    let (one, _, other, second) = neighbours().await;
    let (ours, theirs) = (job("x-y"), job("y"));
    let name = other.queue_names(&theirs).remove(0);
    other.ensure(&theirs).await.expect("the queue is made");
    send(&other, messages(&theirs, 0..1)).await;

    let taken = |error: &QueueError| assert_taken(error, &name, &second.prefix);
    taken(&one.ensure(&ours).await.expect_err("it is taken"));
    let sent = one.send(messages(&ours, 5..6)).await.remove(0);
    taken(&sent.expect_err("it is taken"));
    let received = one.receive(&ours, 1, Duration::from_secs(1)).await;
    taken(&received.expect_err("it is taken"));
    taken(&one.depth(&ours).await.expect_err("it is taken"));
    taken(&one.mend(&ours).await.expect_err("it is taken"));
    let info = one.describe(&ours).await.expect("it may be looked at");
    assert_eq!(info[0].other_owner(), Some(second.prefix.as_str()));
    one.remove(&ours).await.expect("there is none of ours");

    let info = other.describe(&theirs).await.expect("it answers").remove(0);
    assert_eq!(info.other_owner(), None);
    assert_eq!(info.tags["dueline:prefix"], second.prefix);
    assert_eq!(info.tags["dueline:job"], "y");
    let got = other.receive(&theirs, 10, Duration::from_secs(1)).await;
    assert_eq!(numbers(&got.expect("receiving works")), [0]);
}

#[tokio::test]
async fn the_one_with_the_shorter_prefix_may_have_been_first() {
    let (one, first, other, _) = neighbours().await;
    one.ensure(&job("x-y")).await.expect("the queue is made");
    let name = one.queue_names(&job("x-y")).remove(0);
    let error = other.ensure(&job("y")).await.expect_err("it is taken");
    assert_taken(&error, &name, &first.prefix);
    // Its other jobs have queues.
    other.ensure(&job("z")).await.expect("the queue is made");
}

#[tokio::test]
async fn a_queue_without_our_tag_is_taken_for_ours() {
    let options = options().await;
    let (queue, _) = open(options.clone()).await;
    let mail = job("mail");
    let client = client().await;
    let name = queue.queue_names(&mail).remove(0);
    let by_hand = client.create_queue().queue_name(&name);
    by_hand.send().await.expect("it is made");
    queue.ensure(&mail).await.expect("it is used");
    send(&queue, messages(&mail, 0..1)).await;
    queue.mend(&mail).await.expect("it is mended");
    let tags = client
        .list_queue_tags()
        .queue_url(url(&client, &name).await);
    let tags = tags.send().await.expect("it answers").tags;
    let tags = tags.expect("it has tags");
    assert_eq!(tags["dueline:prefix"], options.prefix);
}

#[tokio::test]
async fn a_set_aside_queue_of_another_deployment_is_refused() {
    let stub = Stub::start(|operation, _| {
        let tags = json!({ "Tags": { "dueline:prefix": "somebody" } });
        (operation == "ListQueueTags").then_some((200, tags))
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    let error = queue.ensure_set_aside().await.expect_err("it is taken");
    assert_taken(&error, "dueline--set-aside", "somebody");
    assert!(queue.mend_set_aside().await.is_err());
    assert!(stub.calls("TagQueue").is_empty());
}

#[tokio::test]
async fn tags_are_read_once_for_each_queue_and_never_of_one_that_we_made() {
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
    let asked = stub.calls("ListQueueTags");
    assert_eq!(asked.len(), 1, "{asked:?}");
    let url = asked[0]["QueueUrl"].as_str().unwrap_or_default();
    assert!(url.ends_with("/dueline-mail"), "{url}");
}

#[tokio::test]
async fn a_queue_of_another_deployment_is_asked_about_again_after_a_minute() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let stub = Stub::start(move |operation, _| {
        let is_first = || count.fetch_add(1, Ordering::SeqCst) == 0;
        let owner = |is_first| if is_first { "somebody" } else { "dueline" };
        (operation == "ListQueueTags").then(|| {
            let tags = json!({ "dueline:prefix": owner(is_first()) });
            (200, json!({ "Tags": tags }))
        })
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    for _ in 0..5 {
        let error = queue.ensure(&job("mail")).await.expect_err("it is taken");
        assert_taken(&error, "dueline-mail", "somebody");
        let sent = queue.send(messages(&job("mail"), 0..1)).await;
        assert!(sent[0].is_err());
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    time::pause();
    time::advance(Duration::from_secs(61)).await;
    time::resume();
    queue.ensure(&job("mail")).await.expect("it is ours now");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn whoever_may_not_read_tags_uses_the_queue_and_asks_once() {
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
async fn no_queue_is_used_before_its_tags_were_answered() {
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
