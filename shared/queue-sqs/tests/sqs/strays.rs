//! Messages that are none of ours: set aside once, never looping.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_sdk_sqs::types::MessageSystemAttributeName;
use dueline_ports::TaskQueue;
use serde_json::json;

use crate::{
    stub::{Stub, error},
    support::{
        client, job, mail, messages, numbers, open, options, receipts, receive, send, url,
        wait_until,
    },
};

#[tokio::test]
async fn poison_and_foreign_messages_are_set_aside_with_their_reason() {
    let (queue, _) = mail().await;
    let client = client().await;
    let source = url(&client, &queue.queue_names(&job("mail"))[0]).await;
    send(&queue, messages(&job("mail"), 0..1)).await;
    let strays = BTreeMap::from([
        ("poison, not JSON", "malformed"),
        (r#"{"Records":[{"eventSource":"aws:s3"}]}"#, "foreign"),
        (
            r#"{"v":2,"job":"mail","t":"packed otherwise"}"#,
            "newer_version",
        ),
        (r#"{"v":1,"job":"post","t":[]}"#, "wrong_job"),
        (r#"{"v":1,"job":"mail","t":[{"id":"?"}]}"#, "malformed"),
    ]);
    for body in strays.keys() {
        let sent = client.send_message().queue_url(&source).message_body(*body);
        sent.send().await.expect("it is sent");
    }
    send(&queue, messages(&job("mail"), 1..2)).await;

    let mut good = Vec::new();
    wait_until("the good ones are received", async || {
        good.extend(receive(&queue, 10).await);
        good.len() == 2
    })
    .await;
    assert_eq!(numbers(&good), [0, 1]);
    queue
        .ack(receipts(&good))
        .await
        .expect("acknowledging works");
    wait_until("the queue is empty", async || {
        let depth = queue.depth(&job("mail")).await.expect("the depth is known");
        depth.visible + depth.in_flight == 0
    })
    .await;

    let aside = url(&client, queue.set_aside_name()).await;
    let mut found = BTreeMap::new();
    wait_until("all are set aside", async || {
        let taken = client.receive_message().queue_url(&aside);
        let taken = taken
            .max_number_of_messages(10)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All);
        let taken = taken.send().await.expect("it answers");
        for message in taken.messages.unwrap_or_default() {
            let beside = message.message_attributes.expect("attributes");
            let text = |name: &str| beside[name].string_value.clone().expect("a text");
            assert!(source.ends_with(&text("source_queue")));
            assert!(!text("message_id").is_empty());
            found.insert(message.body.expect("a body"), text("reason"));
        }
        found.len() >= strays.len()
    })
    .await;
    let strays = strays
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(found, strays.collect());
}

#[tokio::test]
async fn a_stray_of_the_largest_size_is_cut_rather_than_kept_in_the_way() {
    let (queue, _) = mail().await;
    let client = client().await;
    let source = url(&client, &queue.queue_names(&job("mail"))[0]).await;
    let body = "é".repeat(512 * 1024);
    let sent = client.send_message().queue_url(&source).message_body(&body);
    sent.send().await.expect("it is sent");
    assert!(receive(&queue, 10).await.is_empty());
    wait_until("the queue is empty", async || {
        let depth = queue.depth(&job("mail")).await.expect("the depth is known");
        depth.visible + depth.in_flight == 0
    })
    .await;
    let aside = url(&client, queue.set_aside_name()).await;
    let taken = client.receive_message().queue_url(&aside);
    let taken = taken
        .message_attribute_names("All")
        .send()
        .await
        .expect("it answers");
    let message = &taken.messages()[0];
    let beside = message.message_attributes().expect("attributes");
    assert_eq!(beside["cut_from_bytes"].string_value(), Some("1048576"));
    assert!(body.starts_with(message.body().expect("a body")));
}

#[tokio::test]
async fn the_set_aside_queue_is_made_again_when_somebody_deletes_it() {
    let options = options().await;
    let (queue, _) = open(options).await;
    queue.ensure(&job("mail")).await.expect("the queue is made");
    queue.ensure_set_aside().await.expect("it is made");
    let client = client().await;
    let aside = url(&client, queue.set_aside_name()).await;
    let deleted = client.delete_queue().queue_url(&aside).send().await;
    deleted.expect("it is deleted");
    let source = url(&client, &queue.queue_names(&job("mail"))[0]).await;
    let sent = client
        .send_message()
        .queue_url(&source)
        .message_body("poison");
    sent.send().await.expect("it is sent");
    // The first try finds the queue gone; the message comes back by its timeout, and the second one makes it.
    let wait = Duration::from_secs(20);
    let receiving = async {
        queue
            .receive(&job("mail"), 10, wait)
            .await
            .map(|got| got.len())
    };
    let gone = async {
        loop {
            let depth = queue.depth(&job("mail")).await.expect("the depth is known");
            if depth.visible + depth.in_flight == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        biased;
        () = gone => {}
        received = receiving => panic!("{received:?}"),
    }
    assert!(queue.describe_set_aside().await.expect("it answers").exists);
}

#[tokio::test]
async fn what_cannot_be_set_aside_stays_invisible_and_loops_nowhere() {
    let poison = Arc::new(Mutex::new(Some(json!({
        "Messages": [{ "MessageId": "m", "ReceiptHandle": "h", "Body": "poison" }],
    }))));
    let stub = Stub::start(move |operation, input| match operation {
        "ReceiveMessage" => poison
            .lock()
            .expect("no panic")
            .take()
            .map(|poison| (200, poison)),
        "SendMessageBatch" if input["QueueUrl"].as_str()?.ends_with("--set-aside") => {
            error(403, "AccessDeniedException")
        }
        _ => None,
    })
    .await;
    let (queue, _) = open(stub.options()).await;
    let got = queue
        .receive(&job("mail"), 10, Duration::from_secs(2))
        .await;
    assert!(got.expect("receiving works").is_empty());
    assert_eq!(stub.calls("SendMessageBatch").len(), 1);
    assert!(
        stub.calls("DeleteMessageBatch").is_empty(),
        "it is not lost"
    );
    assert!(
        stub.calls("ChangeMessageVisibilityBatch").is_empty(),
        "it stays invisible"
    );
    assert!(stub.calls("ReceiveMessage").len() <= 3);
}
