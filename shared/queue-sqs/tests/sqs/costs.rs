//! Costs, by the meter and by the requests that are actually sent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_sdk_sqs::{
    Client,
    config::{
        ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeTransmitInterceptorContextRef,
    },
    error::BoxError,
};
use dueline_aws::{Meter, Service, connect};
use dueline_ports::{TaskQueue, conformance::queue::message};
use dueline_queue_sqs::SqsQueue;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    stub::Stub,
    support::{
        job, mail_queue, messages, numbers, open, options, receipts, receive, send, settings,
    },
};

/// Counts requests as they are sent, retries included.
#[derive(Clone, Debug, Default)]
struct SentRequests(Arc<AtomicU64>);

impl Intercept for SentRequests {
    fn name(&self) -> &'static str {
        "SentRequests"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::test]
async fn g_04_a_task_takes_less_than_a_third_of_a_request_at_load_and_all_requests_are_counted() {
    let sent = SentRequests::default();
    let config = connect(Service::Sqs, &settings().await)
        .await
        .expect("a configuration");
    let config = aws_sdk_sqs::config::Builder::from(&config)
        .interceptor(sent.clone())
        .build();
    let meter = Meter::default();
    let queue = SqsQueue::from_client(Client::from_conf(config), options().await, meter.clone());
    let queue = queue.expect("the options are valid");
    let mail = job("mail");
    queue.ensure(&mail).await.expect("the queue is created");
    let mut received = 0;
    // Bursts of many sizes, each shallow enough for any engine.
    for burst in [10, 15, 25, 50, 100, 300, 500] {
        send(&queue, messages(&mail, 0..burst)).await;
        let mut left = usize::try_from(burst).expect("a small number");
        while left > 0 {
            let got = queue.receive(&mail, 100, Duration::from_secs(1)).await;
            let got = got.expect("receiving works");
            queue
                .ack(receipts(&got))
                .await
                .expect("acknowledging works");
            left -= got.len();
            received += got.len();
        }
    }
    assert_eq!(received, 1_000);
    let requests = meter.total().queue_requests;
    assert!(
        requests <= 60,
        "{requests} requests for 1000 tasks: {:?}",
        meter.by_operation()
    );
    assert_eq!(
        requests,
        sent.0.load(Ordering::Relaxed),
        "every sent request is counted"
    );
    let by_job = meter.by_job();
    assert_eq!(
        by_job[&Some("mail".into())].queue_requests,
        requests,
        "counted under the job"
    );
}

#[tokio::test]
async fn concurrent_senders_of_one_task_share_requests() {
    let (queue, meter) = mail_queue().await;
    let mut senders = JoinSet::new();
    for n in 0..64 {
        let queue = queue.clone();
        senders.spawn(async move { send(&queue, vec![message(&job("mail"), n)]).await });
    }
    senders.join_all().await;
    let requests = meter.by_operation()["send"].queue_requests;
    assert!(requests <= 8, "{requests} requests");
    let mut got = Vec::new();
    while got.len() < 64 {
        let more = receive(&queue, 64).await;
        assert!(!more.is_empty());
        got.extend(more);
    }
    assert_eq!(numbers(&got), (0..64).collect::<Vec<_>>());
    // Concurrent acknowledgements of one task each share requests, too.
    let mut acks = JoinSet::new();
    for delivery in got {
        let queue = queue.clone();
        acks.spawn(async move { queue.ack(vec![delivery.receipt]).await });
    }
    for acked in acks.join_all().await {
        acked.expect("acknowledging works");
    }
    let requests = meter.by_operation()["delete"].queue_requests;
    assert!(requests <= 16, "{requests} requests");
    let depth = queue.depth(&job("mail")).await.expect("the depth is known");
    assert_eq!(depth.visible + depth.in_flight, 0);
}

#[tokio::test]
async fn an_idle_job_costs_one_request_per_long_poll() {
    let stub = Stub::start(|_, _| None).await;
    let (queue, meter) = open(stub.options()).await;
    let got = queue
        .receive(&job("mail"), 100, Duration::from_secs(2))
        .await;
    assert!(got.expect("receiving works").is_empty());
    assert_eq!(meter.by_operation()["receive"].queue_requests, 1);
}

#[tokio::test]
async fn an_engine_that_does_not_wait_is_not_polled_in_a_tight_loop() {
    let stub =
        Stub::start(|operation, _| (operation == "ReceiveMessage").then(|| (200, json!({})))).await;
    let (queue, _) = open(stub.options()).await;
    let got = queue
        .receive(&job("mail"), 100, Duration::from_secs(3))
        .await;
    assert!(got.expect("receiving works").is_empty());
    assert!(stub.calls("ReceiveMessage").len() <= 4);
}

#[tokio::test]
async fn a_request_longer_than_64_kib_is_billed_once_per_64_kib() {
    let long = "x".repeat(150 * 1024);
    let reference = json!({
        "id": "00000000-0000-0000-0000-000000000001", "token": "0000000000000001",
        "priority": 0, "weight": 1, "due": 0, "trace": long,
    });
    let body = json!({ "v": 1, "job": "mail", "t": [reference] }).to_string();
    let stub = Stub::start(move |operation, _| {
        let message = json!({ "MessageId": "m", "ReceiptHandle": "h", "Body": body });
        (operation == "ReceiveMessage").then(|| (200, json!({ "Messages": [message] })))
    })
    .await;
    let (queue, meter) = open(stub.options()).await;
    let got = queue.receive(&job("mail"), 1, Duration::ZERO).await;
    let got = got.expect("receiving works");
    assert_eq!(meter.by_operation()["receive"].queue_requests, 3);
    send(&queue, vec![got[0].task.clone()]).await;
    assert_eq!(meter.by_operation()["send"].queue_requests, 3);
    // Many long references are spread over requests that are billed once each.
    let tasks = (0..40).map(|n| dueline_domain::TaskRef {
        trace: Some("x".repeat(10_000).into()),
        ..message(&job("mail"), n)
    });
    let before = meter.total().queue_requests;
    send(&queue, tasks.collect()).await;
    let calls = stub.calls("SendMessageBatch").len() as u64 - 1;
    assert_eq!(meter.total().queue_requests - before, calls);
    assert!(calls <= 7, "{calls} requests for 400 KB");
}
