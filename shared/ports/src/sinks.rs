//! The sink seam: where the records of finished tasks are delivered.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dueline_domain::{JobName, Sink, TaskId, Timestamp};

/// Delivers the records of finished tasks.
#[async_trait]
pub trait Sinks: Send + Sync + 'static {
    /// Whether this deployment delivers to a sink. Called before a job with the sink is stored; calls nothing over the
    /// network.
    fn check(&self, sink: &Sink) -> Result<(), SinkRefused>;

    /// Delivers records of one job. A record whose result is `Ok` is durable in the sink. Another one may have arrived,
    /// too, and arrives again with its next delivery. Results are in the order of the records. The call ends within a
    /// bounded time.
    async fn deliver(&self, sink: &Sink, records: Vec<SinkRecord>) -> Vec<Result<(), SinkFailure>>;
}

/// The record of a finished task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRecord {
    /// The task's job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// The end of the task. Job, id and end name the record: each of its deliveries has the same.
    pub finished_at: Timestamp,
    /// The task as JSON on one line, without a line break at its end.
    pub json: Bytes,
}

/// A sink to which this deployment does not deliver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SinkRefused {
    /// The reason for programs.
    pub reason: &'static str,
    /// The reason for people.
    pub message: String,
}

/// A delivery that failed. It is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkFailure(pub Arc<str>);

impl SinkFailure {
    /// A failure with this text.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(Arc::from(text.as_ref()))
    }
}
