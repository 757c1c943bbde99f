//! Every verb of the queue, both ways.

use std::{sync::Arc, time::Duration};

use dueline_api::grpc::{QueueClient, Services};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, TaskQueue as _};
use futures_util::FutureExt as _;

use crate::{
    fakes::{Script, Scripted, VISIBILITY_TIMEOUT, said},
    server::TestServer,
    values::{MS, name, task_ref},
};

async fn start() -> (TestServer, Arc<Script>, QueueClient) {
    let fake = Scripted::default();
    let services = Services {
        queue: Some(Arc::new(fake.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let client = server.remote().queue();
    (server, fake.0, client)
}

fn queue_errors() -> Vec<QueueError> {
    vec![
        QueueError::NotFound(name("b")),
        QueueError::Full(name("b")),
        QueueError::Throttled,
        QueueError::Unavailable(Arc::from("no route")),
        QueueError::Invalid(Arc::from("")),
    ]
}

/// Queue errors cannot be compared, but their texts can.
fn text<T: std::fmt::Debug>(answer: &T) -> String {
    format!("{answer:?}")
}

fn receipts() -> Vec<Receipt> {
    vec![
        Receipt::Local {
            job: name("a"),
            number: u64::MAX,
        },
        Receipt::Local {
            job: name("a"),
            number: 0,
        },
        Receipt::Handle {
            job: name("b"),
            handle: Arc::from("A".repeat(1_024)),
        },
    ]
}

#[tokio::test]
async fn messages_sent_arrive_and_each_has_its_answer() {
    let (_server, script, client) = start().await;
    let messages: Vec<_> = (0..6).map(task_ref).collect();
    let mut answers: Vec<Result<(), QueueError>> = vec![Ok(())];
    answers.extend(queue_errors().into_iter().map(Err));
    script.answers(answers.clone());
    let sent = client.send(messages.clone()).await;
    assert_eq!(text(&sent), text(&answers));
    assert_eq!(script.calls(), [said("send", (messages,))]);
}

#[tokio::test]
async fn messages_received_arrive() {
    let (_server, script, client) = start().await;
    let deliveries: Vec<_> = receipts()
        .into_iter()
        .map(|receipt| Delivery {
            task: task_ref(1),
            receipt,
            received: u32::MAX,
        })
        .collect();
    for answer in [deliveries, Vec::new()] {
        script.answers(Ok::<_, QueueError>(answer.clone()));
        let received = client.receive(&name("b"), 10_000, MS * 20_000).await;
        assert_eq!(received.unwrap(), answer);
        let call = said("receive", (name("b"), 10_000, MS * 20_000));
        assert_eq!(script.calls(), [call]);
    }
}

#[tokio::test]
async fn receipts_arrive() {
    let (_server, script, client) = start().await;
    for _ in 0..3 {
        script.answers(Ok::<(), QueueError>(()));
    }
    client.ack(receipts()).await.unwrap();
    client.nack(receipts(), Duration::ZERO).await.unwrap();
    client.extend(receipts()).await.unwrap();
    let calls = [
        said("ack", (receipts(),)),
        said("nack", (receipts(), Duration::ZERO)),
        said("extend", (receipts(),)),
    ];
    assert_eq!(script.calls(), calls);
    client.ack(Vec::new()).await.unwrap();
    assert_eq!(script.calls(), [""; 0]);
}

#[tokio::test]
async fn depths_and_errors_arrive() {
    let (_server, script, client) = start().await;
    let depth = Depth {
        visible: u64::MAX,
        in_flight: 3,
    };
    script.answers(Ok::<_, QueueError>(depth));
    assert_eq!(client.depth(&name("b")).await.unwrap(), depth);
    for error in queue_errors() {
        script.answers(Err::<Depth, _>(error.clone()));
        let answer = client.depth(&name("b")).await.unwrap_err();
        assert_eq!(text(&answer), text(&error));
    }
}

#[tokio::test]
async fn the_visibility_timeout_is_the_servers_as_soon_as_it_has_answered() {
    let (_server, script, client) = start().await;
    assert!(client.visibility_timeout() < VISIBILITY_TIMEOUT);
    script.answers(Ok::<(), QueueError>(()));
    client.ensure(&name("b")).await.unwrap();
    assert_eq!(script.calls(), [said("ensure", (name("b"),))]);
    assert_eq!(client.visibility_timeout(), VISIBILITY_TIMEOUT);
}

#[tokio::test]
async fn queues_are_neither_removed_nor_refilled_from_another_host() {
    let (_server, script, client) = start().await;
    let refused = client.remove(&name("b")).await;
    assert!(matches!(refused, Err(QueueError::Invalid(_))));
    assert!(client.refill_demand().now_or_never().is_none());
    assert_eq!(script.calls(), [""; 0]);
}
