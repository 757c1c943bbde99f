//! Opens queues on an engine for tests.

use std::{sync::Arc, time::Duration};

use aws_sdk_sqs::Client;
use dueline_aws::{AwsSettings, Meter, Service, connect};
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Receipt, TaskQueue, conformance::queue::message};
use dueline_queue_sqs::{SqsOptions, SqsQueue};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY, unique};
use tokio::time::{Instant, sleep};

/// The visibility timeout: long enough that it does not pass by itself on a slow machine.
pub(crate) const VISIBILITY: Duration = Duration::from_secs(6);
/// The time limit of [`wait_until`].
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) async fn settings() -> AwsSettings {
    settings_at(dueline_tests_engines::sqs().await.url)
}

/// Settings with this endpoint.
pub(crate) fn settings_at(url: String) -> AwsSettings {
    AwsSettings {
        region: Some(REGION.to_owned()),
        endpoint: Some(url),
        keys: Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())),
        ..AwsSettings::default()
    }
}

/// Options with a unique prefix.
pub(crate) async fn options() -> SqsOptions {
    SqsOptions {
        prefix: unique("t"),
        aws: settings().await,
        visibility_timeout: VISIBILITY,
        priority_queues: false,
    }
}

pub(crate) async fn open(options: SqsOptions) -> (Arc<SqsQueue>, Meter) {
    let meter = Meter::default();
    let queue = SqsQueue::open(options, meter.clone()).await;
    (queue.expect("the queue opens"), meter)
}

/// A queue with the job `mail`, and the meter of its costs.
pub(crate) async fn mail_queue() -> (Arc<SqsQueue>, Meter) {
    let (queue, meter) = open(options().await).await;
    queue
        .ensure(&job("mail"))
        .await
        .expect("the queue is created");
    (queue, meter)
}

/// A separate client, for calls that [`SqsQueue`] never makes.
pub(crate) async fn client() -> Client {
    let config = connect(Service::Sqs, &settings().await).await;
    Client::new(&config.expect("a configuration"))
}

pub(crate) async fn url(client: &Client, name: &str) -> String {
    let out = client.get_queue_url().queue_name(name).send().await;
    let url = out.expect("the queue exists").queue_url;
    url.expect("it has a URL")
}

pub(crate) fn job(name: &str) -> JobName {
    JobName::parse(name).expect("a legal job name")
}

pub(crate) fn messages(job: &JobName, numbers: std::ops::Range<u64>) -> Vec<TaskRef> {
    numbers.map(|n| message(job, n)).collect()
}

pub(crate) async fn send(queue: &SqsQueue, tasks: Vec<TaskRef>) {
    for result in queue.send(tasks).await {
        result.expect("the message is sent");
    }
}

pub(crate) async fn receive(queue: &SqsQueue, max: usize) -> Vec<Delivery> {
    let received = queue
        .receive(&job("mail"), max, Duration::from_secs(1))
        .await;
    received.expect("receiving works")
}

pub(crate) fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|d| d.receipt.clone()).collect()
}

/// The numbers from which [`message`] made the tasks, sorted.
pub(crate) fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    let numbers = deliveries.iter().map(|d| d.task.token.get() - 1);
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Polls until `is_so` returns true; fails after [`SOON`].
pub(crate) async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let bound = Instant::now() + SOON;
    while !is_so().await {
        assert!(Instant::now() < bound, "{what}");
        sleep(Duration::from_millis(50)).await;
    }
}
