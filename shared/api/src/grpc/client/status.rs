//! A status controller on another host.

use std::time::Duration;

use async_trait::async_trait;
use dueline_domain::{TaskRef, WorkerId, limits};
use futures_util::{StreamExt as _, stream};
use tonic::transport::Channel;

use super::{
    Remote,
    batch::{answers, missing, send_in_chunks, value, values},
    errors::Effect::{Reads, Writes},
};
use crate::{
    Alive, ApiError, Assignment, Registration, Report, Reported, ServedJob, Status,
    grpc::{
        message::{ASSIGNMENTS_MAX, MESSAGE_BYTES_MAX},
        proto::{self, claim_result, report_result, status_client},
    },
};

/// Claims of one batch that are under way at once, a message each.
const CLAIMS_AT_ONCE: usize = 4;

/// A status controller on another host.
#[derive(Clone, Debug)]
pub struct StatusClient {
    remote: Remote,
}

impl StatusClient {
    pub(super) const fn new(remote: Remote) -> Self {
        Self { remote }
    }

    fn client(&self) -> status_client::StatusClient<Channel> {
        status_client::StatusClient::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Claims as many tasks as fit into one answer even when their inputs are large.
    async fn claim_some(
        &self,
        worker: &WorkerId,
        messages: Vec<proto::TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        let asked = messages.len();
        let request = proto::ClaimRequest {
            worker: worker.to_string(),
            messages,
            start,
        };
        let mut client = self.client();
        let call = client.claim(request);
        let answered = self.remote.call(Writes, Duration::ZERO, call).await;
        let read = |result: proto::ClaimResult| match result.result.ok_or_else(missing)? {
            claim_result::Result::Assignment(assignment) => value(Some(assignment)),
            claim_result::Result::Error(error) => Err(error.into()),
        };
        answers(asked, answered.map(|answer| answer.results), read)
    }

    async fn report_some(&self, reports: Vec<proto::Report>) -> Vec<Result<Reported, ApiError>> {
        let asked = reports.len();
        let mut client = self.client();
        let call = client.report(proto::ReportRequest { reports });
        let answered = self.remote.call(Writes, Duration::ZERO, call).await;
        answers(asked, answered.map(|answer| answer.results), reported)
    }
}

/// Reads the answer to a report, which two services give.
pub(super) fn reported(result: proto::ReportResult) -> Result<Reported, ApiError> {
    match result.result.ok_or_else(missing)? {
        report_result::Result::Reported(reported) => value(Some(reported)),
        report_result::Result::Error(error) => Err(error.into()),
    }
}

/// Reads the answer to a sign of life, which two services give.
pub(super) const fn alive(answer: &proto::AliveResponse) -> Alive {
    Alive {
        interval: Duration::from_millis(answer.interval_ms),
        claims_start: answer.claims_start,
    }
}

#[async_trait]
impl Status for StatusClient {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        let messages: Vec<proto::TaskRef> = messages.into_iter().map(Into::into).collect();
        let mut chunks = Vec::with_capacity(messages.len().div_ceil(ASSIGNMENTS_MAX));
        for chunk in messages.chunks(ASSIGNMENTS_MAX) {
            chunks.push(self.claim_some(worker, chunk.to_vec(), start));
        }
        let answered: Vec<_> = stream::iter(chunks)
            .buffered(CLAIMS_AT_ONCE)
            .collect()
            .await;
        answered.into_iter().flatten().collect()
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        let reports = reports.into_iter().map(Into::into).collect();
        let len_max = limits().batch_len_max;
        send_in_chunks(reports, len_max, |reports| self.report_some(reports)).await
    }

    async fn alive(&self, worker: Registration) -> Result<Alive, ApiError> {
        let mut client = self.client();
        let call = client.alive(proto::AliveRequest::from(worker));
        let answer = self.remote.call(Writes, Duration::ZERO, call).await?;
        Ok(alive(&answer))
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let mut client = self.client();
        let worker = worker.to_string();
        let call = client.leave(proto::LeaveRequest { worker });
        self.remote.call(Writes, Duration::ZERO, call).await?;
        Ok(())
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        let mut client = self.client();
        let call = client.jobs(proto::JobsRequest {});
        values(self.remote.call(Reads, Duration::ZERO, call).await?.jobs)
    }
}
