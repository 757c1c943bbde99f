//! Messages that cannot be read: quarantined once, never received in a loop.

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
        client, job, mail_queue, messages, numbers, open, options, receipts, receive, send, url,
        wait_until,
    },
};

#[tokio::test]
async fn poison_and_foreign_messages_are_quarantined_with_their_reason() {
    let (queue, _) = mail_queue().await;
    let client = client().await;
    let source = url(&client, &queue.queue_names(&job("mail"))[0]).await;
    send(&queue, messages(&job("mail"), 0..1)).await;
    let unreadable = BTreeMap::from([
        ("poison, not JSON", "malformed"),
        (r#"{"Records":[{"eventSource":"aws:s3"}]}"#, "foreign"),
        (
            r#"{"v":2,"job":"mail","t":"packed otherwise"}"#,
            "newer_version",
        ),
        (r#"{"v":1,"job":"post","t":[]}"#, "wrong_job"),
        (r#"{"v":1,"job":"mail","t":[{"id":"?"}]}"#, "malformed"),
    ]);
    for body in unreadable.keys() {
        let sent = client.send_message().queue_url(&source).message_body(*body);
        sent.send().await.expect("it is sent");
    }
    send(&queue, messages(&job("mail"), 1..2)).await;

    let mut received = Vec::new();
    wait_until("the valid messages are received", async || {
        received.extend(receive(&queue, 10).await);
        received.len() == 2
    })
    .await;
    assert_eq!(numbers(&received), [0, 1]);
    queue
        .ack(receipts(&received))
        .await
        .expect("acknowledging works");
    wait_until("the queue is empty", async || {
        let depth = queue.depth(&job("mail")).await.expect("the depth is known");
        depth.visible + depth.in_flight == 0
    })
    .await;

    let quarantine = url(&client, queue.quarantine_name()).await;
    let mut found = BTreeMap::new();
    wait_until("all are quarantined", async || {
        let receive = client.receive_message().queue_url(&quarantine);
        let receive = receive
            .max_number_of_messages(10)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All);
        let response = receive.send().await.expect("it answers");
        for message in response.messages.unwrap_or_default() {
            let attributes = message.message_attributes.expect("attributes");
            let text = |name: &str| attributes[name].string_value.clone().expect("a text");
            assert!(source.ends_with(&text("source_queue")));
            assert!(!text("message_id").is_empty());
            found.insert(message.body.expect("a body"), text("reason"));
        }
        found.len() >= unreadable.len()
    })
    .await;
    let unreadable = unreadable
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(found, unreadable.collect());
}

#[tokio::test]
async fn an_unreadable_message_of_the_largest_size_is_truncated() {
    let (queue, _) = mail_queue().await;
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
    let quarantine = url(&client, queue.quarantine_name()).await;
    let receive = client.receive_message().queue_url(&quarantine);
    let response = receive
        .message_attribute_names("All")
        .send()
        .await
        .expect("it answers");
    let message = &response.messages()[0];
    let attributes = message.message_attributes().expect("attributes");
    assert_eq!(attributes["cut_from_bytes"].string_value(), Some("1048576"));
    assert!(body.starts_with(message.body().expect("a body")));
}

#[tokio::test]
async fn the_quarantine_queue_is_created_again_after_its_deletion() {
    let options = options().await;
    let (queue, _) = open(options).await;
    queue
        .ensure(&job("mail"))
        .await
        .expect("the queue is created");
    queue
        .ensure_quarantine()
        .await
        .expect("the queue is created");
    let client = client().await;
    let quarantine = url(&client, queue.quarantine_name()).await;
    let deleted = client.delete_queue().queue_url(&quarantine).send().await;
    deleted.expect("it is deleted");
    let source = url(&client, &queue.queue_names(&job("mail"))[0]).await;
    let sent = client
        .send_message()
        .queue_url(&source)
        .message_body("poison");
    sent.send().await.expect("it is sent");
    // The first attempt finds the quarantine queue gone. The message is received again after its timeout, and the
    // second attempt creates the queue.
    let wait = Duration::from_secs(20);
    let receiving = async {
        queue
            .receive(&job("mail"), 10, wait)
            .await
            .map(|got| got.len())
    };
    let emptied = async {
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
        () = emptied => {}
        received = receiving => panic!("{received:?}"),
    }
    assert!(
        queue
            .describe_quarantine()
            .await
            .expect("it answers")
            .exists
    );
}

#[tokio::test]
async fn a_message_that_cannot_be_quarantined_stays_invisible() {
    let poison = Arc::new(Mutex::new(Some(json!({
        "Messages": [{ "MessageId": "m", "ReceiptHandle": "h", "Body": "poison" }],
    }))));
    let stub = Stub::start(move |operation, input| match operation {
        "ReceiveMessage" => poison
            .lock()
            .expect("no panic")
            .take()
            .map(|poison| (200, poison)),
        "SendMessageBatch" if input["QueueUrl"].as_str()?.ends_with("--quarantine") => {
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
