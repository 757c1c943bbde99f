#![doc = include_str!("../README.md")]

mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(not(feature = "http"))]
#[path = "no_http.rs"]
mod http;
#[cfg(feature = "aws")]
mod sqs;

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use dueline_domain::{Sink, SinkTarget};
use dueline_ports::{SinkFailure, SinkRecord, SinkRefused, Sinks};
use tokio::time::timeout;

use crate::{file::FileSinks, http::HttpSinks};

#[cfg(feature = "aws")]
pub use crate::sqs::SqsSinks;

/// Longest delivery of all records of one call.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(30);

/// What the sinks of a deployment may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkOptions {
    /// The folder of the files; `None` refuses them.
    pub folder: Option<PathBuf>,
    /// Whether records may be posted to private, local and other addresses that are not public.
    pub http_allow_private: bool,
}

/// The sinks of a deployment.
#[derive(Debug)]
pub struct DeploymentSinks {
    files: Option<FileSinks>,
    http: HttpSinks,
    #[cfg(feature = "aws")]
    sqs: Option<SqsSinks>,
}

impl DeploymentSinks {
    /// Sinks that are files and URLs.
    pub fn new(options: SinkOptions) -> Self {
        Self {
            files: options.folder.map(FileSinks::new),
            http: HttpSinks::new(options.http_allow_private),
            #[cfg(feature = "aws")]
            sqs: None,
        }
    }

    /// The same, and queues of SQS.
    #[cfg(feature = "aws")]
    #[must_use]
    pub fn with_sqs(self, sqs: SqsSinks) -> Self {
        let sqs = Some(sqs);
        Self { sqs, ..self }
    }

    async fn deliver_all(
        &self,
        sink: &Sink,
        records: &[SinkRecord],
    ) -> Vec<Result<(), SinkFailure>> {
        let refused = |refused: SinkRefused| {
            let failure = SinkFailure::new(refused.message);
            vec![Err(failure); records.len()]
        };
        match sink.target() {
            SinkTarget::File(name) => match &self.files {
                Some(files) => files.deliver(name, records).await,
                None => refused(no_folder()),
            },
            SinkTarget::Http(url) => self.http.deliver(url, records).await,
            SinkTarget::Sqs(queue) => self
                .deliver_sqs(queue, records)
                .await
                .unwrap_or_else(refused),
        }
    }

    #[cfg(feature = "aws")]
    async fn deliver_sqs(
        &self,
        queue: &str,
        records: &[SinkRecord],
    ) -> Result<Vec<Result<(), SinkFailure>>, SinkRefused> {
        match &self.sqs {
            Some(sqs) => Ok(sqs.deliver(queue, records).await),
            None => Err(no_sqs()),
        }
    }

    #[cfg(not(feature = "aws"))]
    async fn deliver_sqs(
        &self,
        _queue: &str,
        _records: &[SinkRecord],
    ) -> Result<Vec<Result<(), SinkFailure>>, SinkRefused> {
        Err(no_sqs())
    }

    #[cfg(feature = "aws")]
    fn check_sqs(&self, queue: &str) -> Result<(), SinkRefused> {
        self.sqs.as_ref().ok_or_else(no_sqs)?.check(queue)
    }

    #[cfg(not(feature = "aws"))]
    fn check_sqs(&self, _queue: &str) -> Result<(), SinkRefused> {
        Err(no_sqs())
    }
}

fn no_folder() -> SinkRefused {
    SinkRefused {
        reason: "sink_not_available",
        message: "this deployment has no folder for files (sinks.folder is empty)".into(),
    }
}

fn no_sqs() -> SinkRefused {
    SinkRefused {
        reason: "sink_not_available",
        message: "this deployment has no SQS queues".into(),
    }
}

#[async_trait]
impl Sinks for DeploymentSinks {
    fn check(&self, sink: &Sink) -> Result<(), SinkRefused> {
        match sink.target() {
            SinkTarget::File(_) => self.files.as_ref().map(drop).ok_or_else(no_folder),
            SinkTarget::Http(url) => self.http.check(url),
            SinkTarget::Sqs(queue) => self.check_sqs(queue),
        }
    }

    async fn deliver(&self, sink: &Sink, records: Vec<SinkRecord>) -> Vec<Result<(), SinkFailure>> {
        let delivered = timeout(DELIVERY_TIME_MAX, self.deliver_all(sink, &records)).await;
        delivered.unwrap_or_else(|_| vec![Err(SinkFailure::new("timed out")); records.len()])
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::{JobName, TaskId, Timestamp};

    use super::*;

    /// The record of the task with this number.
    pub(crate) fn record(number: u8) -> SinkRecord {
        SinkRecord {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([number; 16]),
            finished_at: Timestamp::clamped(7_000),
            json: format!("{{\"n\":{number}}}").into(),
        }
    }

    #[tokio::test]
    async fn f_111_a_sink_that_the_deployment_lacks_is_refused_and_its_deliveries_fail() {
        let sinks = DeploymentSinks::new(SinkOptions::default());
        for uri in ["file:a", "sqs://a"] {
            let sink = Sink::parse(uri).unwrap();
            let refused = sinks.check(&sink).unwrap_err();
            assert_eq!(refused.reason, "sink_not_available", "{uri}");
            let result = sinks.deliver(&sink, vec![record(1)]).await.remove(0);
            assert_eq!(result, Err(SinkFailure::new(refused.message)));
        }
    }
}
