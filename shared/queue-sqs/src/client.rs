//! The calls to SQS. Each one is counted in the meter, and its error is classified.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use aws_sdk_sqs::{
    Client,
    config::{Config, http::HttpResponse, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    types::{
        BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
        DeleteMessageBatchRequestEntry, MessageAttributeValue, MessageSystemAttributeName,
        QueueAttributeName, SendMessageBatchRequestEntry,
    },
};
use dueline_aws::{Class, Cost, Failure, Meter, classify};
use dueline_domain::JobName;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::pack::CHUNK_BYTES;

/// Most requests in flight over all queues, receives excluded.
const REQUESTS_MAX: usize = 64;

/// A message to be sent.
pub(crate) struct OutgoingMessage {
    pub(crate) body: String,
    pub(crate) delay_s: i32,
    /// Message attributes, sent beside the body.
    pub(crate) attributes: Vec<(&'static str, String)>,
}

/// A received message.
pub(crate) struct ReceivedMessage {
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) handle: String,
    pub(crate) received: u32,
}

/// An SQS client whose calls are counted in a meter.
pub(crate) struct MeteredClient {
    client: Client,
    meter: Meter,
    timeout: Duration,
    requests: Semaphore,
}

/// The job and operation under which a call is counted.
#[derive(Clone, Copy)]
struct CallLabel<'a> {
    job: Option<&'a JobName>,
    operation: &'static str,
}

type EntryResults = Vec<Result<(), Failure>>;

impl MeteredClient {
    pub(crate) fn new(client: Client, meter: Meter, timeout: Duration) -> Self {
        Self {
            client,
            meter,
            timeout,
            requests: Semaphore::new(REQUESTS_MAX),
        }
    }

    fn count(&self, label: CallLabel<'_>, bytes: usize) {
        let cost = Cost {
            queue_requests: bytes.div_ceil(CHUNK_BYTES).max(1) as u64,
            ..Cost::default()
        };
        let job = label.job.map(JobName::as_str);
        self.meter.add(job, label.operation, cost);
    }

    /// Counts a call, unless it was never sent, and classifies its error.
    fn count_and_classify<T, E>(
        &self,
        label: CallLabel<'_>,
        bytes: usize,
        result: Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<T, Failure>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let result = result.map_err(|error| classify(&error));
        if !matches!(&result, Err(failure) if failure.class == Class::NotSent) {
            self.count(label, bytes);
        }
        result
    }

    /// Waits until fewer than [`REQUESTS_MAX`] requests are in flight.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.requests.acquire().await.ok()
    }

    pub(crate) async fn url(&self, job: Option<&JobName>, name: &str) -> Result<Arc<str>, Failure> {
        let label = CallLabel::queue(job);
        let call = self.client.get_queue_url().queue_name(name);
        let out = self.count_and_classify(label, 0, Box::pin(call.send()).await)?;
        out.queue_url.map(Arc::from).ok_or_else(incomplete_response)
    }

    /// Creates a queue. A queue that exists with the same attributes is not an error.
    pub(crate) async fn create(
        &self,
        job: Option<&JobName>,
        name: &str,
        attributes: &BTreeMap<QueueAttributeName, String>,
        tags: &BTreeMap<String, String>,
    ) -> Result<Arc<str>, Failure> {
        let pairs = attributes.iter().map(|(k, v)| (k.clone(), v.clone()));
        let tags = tags.iter().map(|(k, v)| (k.clone(), v.clone()));
        let call = self.client.create_queue().queue_name(name);
        let call = call
            .set_attributes(Some(pairs.collect()))
            .set_tags(Some(tags.collect()));
        let sent = Box::pin(call.send()).await;
        let out = self.count_and_classify(CallLabel::queue(job), 0, sent)?;
        out.queue_url.map(Arc::from).ok_or_else(incomplete_response)
    }

    pub(crate) async fn delete_queue(
        &self,
        job: Option<&JobName>,
        url: &str,
    ) -> Result<(), Failure> {
        let call = self.client.delete_queue().queue_url(url);
        let sent = Box::pin(call.send()).await;
        self.count_and_classify(CallLabel::queue(job), 0, sent)
            .map(|_| ())
    }

    pub(crate) async fn attributes(
        &self,
        job: Option<&JobName>,
        url: &str,
        names: &[QueueAttributeName],
    ) -> Result<BTreeMap<QueueAttributeName, String>, Failure> {
        let call = self.client.get_queue_attributes().queue_url(url);
        let call = call.set_attribute_names(Some(names.to_vec()));
        let sent = Box::pin(call.send()).await;
        let out = self.count_and_classify(CallLabel::queue(job), 0, sent)?;
        Ok(out.attributes.unwrap_or_default().into_iter().collect())
    }

    pub(crate) async fn set_attributes(
        &self,
        job: Option<&JobName>,
        url: &str,
        attributes: BTreeMap<QueueAttributeName, String>,
    ) -> Result<(), Failure> {
        let call = self.client.set_queue_attributes().queue_url(url);
        let call = call.set_attributes(Some(attributes.into_iter().collect()));
        let sent = Box::pin(call.send()).await;
        self.count_and_classify(CallLabel::queue(job), 0, sent)
            .map(|_| ())
    }

    pub(crate) async fn tags(
        &self,
        job: Option<&JobName>,
        url: &str,
    ) -> Result<BTreeMap<String, String>, Failure> {
        let call = self.client.list_queue_tags().queue_url(url);
        let sent = Box::pin(call.send()).await;
        let out = self.count_and_classify(CallLabel::queue(job), 0, sent)?;
        Ok(out.tags.unwrap_or_default().into_iter().collect())
    }

    pub(crate) async fn set_tags(
        &self,
        job: Option<&JobName>,
        url: &str,
        tags: BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let call = self.client.tag_queue().queue_url(url);
        let call = call.set_tags(Some(tags.into_iter().collect()));
        let sent = Box::pin(call.send()).await;
        self.count_and_classify(CallLabel::queue(job), 0, sent)
            .map(|_| ())
    }

    /// One page of the URLs of queues with this name prefix, and the token of the next page.
    pub(crate) async fn page(
        &self,
        name_prefix: &str,
        token: Option<String>,
    ) -> Result<(Vec<String>, Option<String>), Failure> {
        let call = self.client.list_queues().queue_name_prefix(name_prefix);
        let call = call.max_results(1_000).set_next_token(token);
        let sent = Box::pin(call.send()).await;
        let out = self.count_and_classify(CallLabel::queue(None), 0, sent)?;
        Ok((out.queue_urls.unwrap_or_default(), out.next_token))
    }

    /// Sends up to ten messages. Returns a result for each.
    pub(crate) async fn send(
        &self,
        job: Option<&JobName>,
        url: &str,
        messages: &[OutgoingMessage],
    ) -> Result<EntryResults, Failure> {
        let _permit = self.permit().await;
        let entries = messages.iter().enumerate().map(|(n, message)| {
            let entry = SendMessageBatchRequestEntry::builder()
                .id(n.to_string())
                .message_body(&message.body)
                .set_delay_seconds((message.delay_s > 0).then_some(message.delay_s));
            let attributes = message.attributes.iter();
            let entry = attributes.fold(entry, |entry, (name, text)| {
                let value = MessageAttributeValue::builder().data_type("String");
                // Building fails only without a data type.
                match value.string_value(text).build() {
                    Ok(value) => entry.message_attributes(*name, value),
                    Err(_) => entry,
                }
            });
            entry.build()
        });
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(build_failure)?;
        let call = self.client.send_message_batch().queue_url(url);
        let sent = Box::pin(call.set_entries(Some(entries)).send()).await;
        let bytes = messages.iter().map(OutgoingMessage::bytes).sum();
        let out = self.count_and_classify(CallLabel::of(job, "send"), bytes, sent)?;
        let done = out.successful.iter().map(|entry| entry.id.as_str());
        Ok(results_by_entry(messages.len(), done, &out.failed))
    }

    /// Receives up to `max` messages, waiting up to `wait_s` for the first one.
    pub(crate) async fn receive(
        &self,
        job: &JobName,
        url: &str,
        max: usize,
        wait_s: u16,
        visibility_s: i32,
    ) -> Result<Vec<ReceivedMessage>, Failure> {
        let wait = Duration::from_secs(wait_s.into());
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(self.timeout + wait)
            .operation_timeout(self.timeout * 2 + wait)
            .build();
        let call = self.client.receive_message().queue_url(url);
        let call = call
            .max_number_of_messages(i32::try_from(max).unwrap_or(i32::MAX))
            .wait_time_seconds(wait_s.into())
            .visibility_timeout(visibility_s)
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .customize()
            .config_override(Config::builder().timeout_config(timeouts));
        let label = CallLabel::of(Some(job), "receive");
        let sent = Box::pin(call.send()).await;
        let bytes = |messages: &[ReceivedMessage]| messages.iter().map(|m| m.body.len()).sum();
        let messages = sent.map(|out| {
            let messages = out.messages.unwrap_or_default().into_iter();
            messages.filter_map(incoming).collect::<Vec<_>>()
        });
        let size = messages.as_deref().map_or(0, bytes);
        self.count_and_classify(label, size, messages)
    }

    /// Deletes up to ten messages. Returns a result for each.
    pub(crate) async fn delete(
        &self,
        job: &JobName,
        url: &str,
        handles: &[&str],
    ) -> Result<EntryResults, Failure> {
        let _permit = self.permit().await;
        let entries = handles.iter().enumerate().map(|(n, handle)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(n.to_string());
            entry.receipt_handle(*handle).build()
        });
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(build_failure)?;
        let call = self.client.delete_message_batch().queue_url(url);
        let sent = Box::pin(call.set_entries(Some(entries)).send()).await;
        let out = self.count_and_classify(CallLabel::of(Some(job), "delete"), 0, sent)?;
        let done = out.successful.iter().map(|entry| entry.id.as_str());
        Ok(results_by_entry(handles.len(), done, &out.failed))
    }

    /// Makes up to ten messages visible after `visibility_s`. Returns a result for each.
    pub(crate) async fn change_visibility(
        &self,
        job: &JobName,
        url: &str,
        handles: &[&str],
        visibility_s: i32,
    ) -> Result<EntryResults, Failure> {
        let _permit = self.permit().await;
        let entries = handles.iter().enumerate().map(|(n, handle)| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(n.to_string());
            let entry = entry.receipt_handle(*handle);
            entry.visibility_timeout(visibility_s).build()
        });
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(build_failure)?;
        let call = self.client.change_message_visibility_batch().queue_url(url);
        let sent = Box::pin(call.set_entries(Some(entries)).send()).await;
        let out = self.count_and_classify(CallLabel::of(Some(job), "visibility"), 0, sent)?;
        let done = out.successful.iter().map(|entry| entry.id.as_str());
        Ok(results_by_entry(handles.len(), done, &out.failed))
    }
}

impl<'a> CallLabel<'a> {
    const fn of(job: Option<&'a JobName>, operation: &'static str) -> Self {
        Self { job, operation }
    }

    const fn queue(job: Option<&'a JobName>) -> Self {
        Self::of(job, "queue")
    }
}

impl OutgoingMessage {
    fn bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let attribute_bytes: usize = attributes
            .map(|(name, text)| name.len() + text.len() + 6)
            .sum();
        self.body.len() + attribute_bytes
    }
}

/// Converts a message of the SDK. A message without a handle could never be deleted, and is dropped.
fn incoming(message: aws_sdk_sqs::types::Message) -> Option<ReceivedMessage> {
    let attributes = message.attributes.as_ref();
    let count = attributes
        .and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount))
        .and_then(|count| count.parse().ok());
    Some(ReceivedMessage {
        id: message.message_id.unwrap_or_default(),
        body: message.body.unwrap_or_default(),
        handle: message.receipt_handle?,
        received: count.unwrap_or(1),
    })
}

/// Results by entry; entry ids are their indexes. An entry without an answer may have taken effect or not.
fn results_by_entry<'a>(
    count: usize,
    done: impl Iterator<Item = &'a str>,
    failed: &[BatchResultErrorEntry],
) -> EntryResults {
    let mut entries: EntryResults = vec![Err(incomplete_response()); count];
    let managed_queue = |id: &str| id.parse::<usize>().ok().filter(|n| *n < count);
    for n in done.filter_map(managed_queue) {
        entries[n] = Ok(());
    }
    for entry in failed {
        if let Some(n) = managed_queue(&entry.id) {
            let status = if entry.sender_fault { 400 } else { 500 };
            let text = entry.message.as_deref().unwrap_or_default();
            entries[n] = Err(Failure {
                class: Class::of_code(&entry.code, status),
                message: format!("{}: {text}", entry.code).into(),
            });
        }
    }
    entries
}

fn incomplete_response() -> Failure {
    Failure {
        class: Class::Unknown,
        message: "the response of SQS is incomplete".into(),
    }
}

fn build_failure(error: aws_sdk_sqs::error::BuildError) -> Failure {
    Failure {
        class: Class::Invalid,
        message: error.to_string().into(),
    }
}
