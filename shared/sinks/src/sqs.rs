//! Sinks that are queues of SQS: one message for each record.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Mutex, PoisonError},
};

use aws_sdk_sqs::{
    Client,
    error::{DisplayErrorContext, ProvideErrorMetadata as _},
    types::{MessageAttributeValue, SendMessageBatchRequestEntry},
};
use bytes::Bytes;
use dueline_aws::{Cost, Meter};
use dueline_ports::{SinkFailure, SinkRecord, SinkRefused};
use serde_json::Value;

/// Most entries of one request.
const ENTRIES_MAX: usize = 10;
/// Most bytes of one request, attributes included, as every SQS accepts them.
const REQUEST_BYTES_MAX: usize = 256 * 1_024;
/// Bytes that the attributes of an entry and the rounding need.
const ENTRY_BYTES: usize = 1_024;
/// Bytes for which SQS bills one request.
const CHUNK_BYTES: usize = 64 * 1_024;
/// Queues whose URL is remembered.
const URLS_MAX: usize = 1_000;

/// The queues of the account and region of a deployment.
pub struct SqsSinks {
    client: Client,
    meter: Meter,
    /// The prefix of the deployment's own queues.
    prefix: String,
    urls: Mutex<HashMap<String, String>>,
}

impl fmt::Debug for SqsSinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSinks").finish_non_exhaustive()
    }
}

impl SqsSinks {
    /// Sinks by a client. Queues whose names begin with `prefix` belong to the deployment itself, and are refused.
    pub fn new(client: Client, meter: Meter, prefix: String) -> Self {
        Self {
            client,
            meter,
            prefix,
            urls: Mutex::default(),
        }
    }

    /// Refuses the deployment's own queues: they carry references to tasks.
    pub(crate) fn check(&self, queue: &str) -> Result<(), SinkRefused> {
        let rest = queue.strip_prefix(self.prefix.as_str());
        if rest.is_some_and(|rest| rest.starts_with('-')) {
            return Err(SinkRefused {
                reason: "target_not_allowed",
                message: format!("queues that begin with '{}-' carry tasks", self.prefix),
            });
        }
        Ok(())
    }

    pub(crate) async fn deliver(
        &self,
        queue: &str,
        records: &[SinkRecord],
    ) -> Vec<Result<(), SinkFailure>> {
        let failed = |failure: SinkFailure| vec![Err(failure); records.len()];
        if let Err(refused) = self.check(queue) {
            return failed(SinkFailure::new(refused.message));
        }
        let url = match self.url(queue).await {
            Ok(url) => url,
            Err(failure) => return failed(failure),
        };
        let bodies: Vec<_> = records.iter().map(|record| body(&record.json)).collect();
        let mut results = Vec::with_capacity(records.len());
        while results.len() < records.len() {
            let rest = &bodies[results.len()..];
            let len = request_len(rest);
            let entries = records[results.len()..].iter().zip(&rest[..len]);
            let sent = self.send(&url, entries).await;
            if sent.iter().any(Result::is_err) {
                // The queue may have been deleted and created again.
                self.urls().remove(queue);
            }
            results.extend(sent);
        }
        results
    }

    async fn send(
        &self,
        url: &str,
        entries: impl Iterator<Item = (&SinkRecord, &String)>,
    ) -> Vec<Result<(), SinkFailure>> {
        let (mut bytes, mut job, mut batch) = (0, None, Vec::new());
        for (number, (record, body)) in entries.enumerate() {
            bytes += body.len();
            job = Some(record.job.as_str());
            batch.push(entry(number, record, body));
        }
        let batch: Result<Vec<_>, _> = batch.into_iter().collect();
        let batch = match batch {
            Ok(batch) => batch,
            // Every required field is set.
            Err(error) => return vec![Err(SinkFailure::new(error.to_string()))],
        };
        let count = batch.len();
        let cost = Cost {
            queue_requests: bytes.div_ceil(CHUNK_BYTES).max(1) as u64,
            ..Cost::default()
        };
        self.meter.add(job, "deliver", cost);
        let request = self.client.send_message_batch().queue_url(url);
        let answer = match request.set_entries(Some(batch)).send().await {
            Ok(answer) => answer,
            Err(error) => {
                let code = error.code().unwrap_or_default().to_owned();
                let text = format!("{code} {}", DisplayErrorContext(error));
                return vec![Err(SinkFailure::new(text.trim())); count];
            }
        };
        let unanswered = || Err(SinkFailure::new("SQS did not answer for this record"));
        let mut results: Vec<_> = (0..count).map(|_| unanswered()).collect();
        for sent in answer.successful {
            if let Some(result) = sent.id.parse().ok().and_then(|n: usize| results.get_mut(n)) {
                *result = Ok(());
            }
        }
        for refused in answer.failed {
            let number = refused.id.parse().ok();
            if let Some(result) = number.and_then(|n: usize| results.get_mut(n)) {
                let text = refused.message.unwrap_or_default();
                *result = Err(SinkFailure::new(format!("{} {text}", refused.code)));
            }
        }
        results
    }

    async fn url(&self, queue: &str) -> Result<String, SinkFailure> {
        let known = self.urls().get(queue).cloned();
        if let Some(url) = known {
            return Ok(url);
        }
        let cost = Cost {
            queue_requests: 1,
            ..Cost::default()
        };
        self.meter.add(None, "deliver", cost);
        let answer = self.client.get_queue_url().queue_name(queue).send().await;
        let url = match answer {
            Ok(answer) => answer.queue_url.unwrap_or_default(),
            Err(error) => {
                let code = error.code().unwrap_or_default().to_owned();
                let text = format!("{code} {}", DisplayErrorContext(error));
                return Err(SinkFailure::new(text.trim()));
            }
        };
        let mut urls = self.urls();
        if urls.len() >= URLS_MAX {
            urls.clear();
        }
        urls.insert(queue.to_owned(), url.clone());
        Ok(url)
    }

    fn urls(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many bodies fit into one request; at least one.
fn request_len(bodies: &[String]) -> usize {
    let mut bytes = 0;
    let fits = bodies.iter().take(ENTRIES_MAX).take_while(|body| {
        bytes += body.len() + ENTRY_BYTES;
        bytes <= REQUEST_BYTES_MAX
    });
    fits.count().max(1)
}

fn entry(
    number: usize,
    record: &SinkRecord,
    body: &str,
) -> Result<SendMessageBatchRequestEntry, aws_sdk_sqs::error::BuildError> {
    let key = format!(
        "{}/{}/{}",
        record.job,
        record.id,
        record.finished_at.millis()
    );
    let attribute = MessageAttributeValue::builder()
        .data_type("String")
        .string_value(key)
        .build()?;
    SendMessageBatchRequestEntry::builder()
        .id(number.to_string())
        .message_body(body)
        .message_attributes("idempotency-key", attribute)
        .build()
}

/// The body of a message. A record that is too large is sent without its large fields, whose names are in `omitted`.
fn body(json: &Bytes) -> String {
    let text = String::from_utf8_lossy(json);
    if text.len() + ENTRY_BYTES <= REQUEST_BYTES_MAX {
        return text.into_owned();
    }
    let Ok(mut record) = serde_json::from_str::<BTreeMap<String, Value>>(&text) else {
        return text.into_owned();
    };
    let is_large = |name: &str| {
        let large = ["payload", "checkpoint", "result", "runs"];
        large.iter().any(|large| name.starts_with(large))
    };
    let omitted: Vec<Value> = record
        .keys()
        .filter(|name| is_large(name))
        .map(|name| name.as_str().into())
        .collect();
    record.retain(|name, _| !is_large(name));
    record.insert("omitted".into(), omitted.into());
    serde_json::to_string(&record).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_too_large_for_a_message_loses_its_large_fields_only() {
        let small = Bytes::from_static(b"{\"id\":\"1\"}");
        assert_eq!(body(&small), r#"{"id":"1"}"#);
        let large = format!(
            r#"{{"id":"1","payload":"{}","runs":[]}}"#,
            "x".repeat(300_000)
        );
        let body = body(&large.into());
        assert_eq!(body, r#"{"id":"1","omitted":["payload","runs"]}"#);
    }

    #[test]
    fn a_request_has_at_most_ten_records_and_a_quarter_of_a_megabyte() {
        let of = |bytes: usize, count| request_len(&vec!["x".repeat(bytes); count]);
        assert_eq!((of(10, 30), of(10, 3)), (10, 3));
        assert_eq!((of(100_000, 9), of(300_000, 9)), (2, 1));
    }
}
