//! A status controller on another host.

use std::time::Duration;

use async_trait::async_trait;
use dueline_domain::{TaskRef, WorkerId};
use futures_util::{StreamExt as _, stream};
use tonic::transport::Channel;

use super::{
    Remote,
    batch::{answers, missing, value, values},
    errors::Effect::{Reads, Writes},
    shared_calls,
};
use crate::{
    ApiError, Assignment, Registered, Registration, Report, ReportAck, ServedJob, StatusController,
    grpc::{
        message::{ASSIGNMENTS_MAX, MESSAGE_BYTES_MAX},
        proto::{self, claim_result, status_controller_client},
    },
};

/// Claims of one batch that are under way at once, a message each.
const CLAIMS_AT_ONCE: usize = 4;

/// A status controller on another host.
#[derive(Clone, Debug)]
pub struct StatusControllerClient {
    remote: Remote,
}

impl StatusControllerClient {
    pub(super) const fn new(remote: Remote) -> Self {
        Self { remote }
    }

    fn client(&self) -> status_controller_client::StatusControllerClient<Channel> {
        status_controller_client::StatusControllerClient::new(self.remote.channel())
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
}

#[async_trait]
impl StatusController for StatusControllerClient {
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

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let send = |request| {
            let mut client = self.client();
            async move { client.report(request).await }
        };
        shared_calls::report(&self.remote, reports, send).await
    }

    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        let mut client = self.client();
        let call = client.register_worker(proto::RegisterWorkerRequest::from(worker));
        shared_calls::register_worker(&self.remote, call).await
    }

    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let mut client = self.client();
        let worker = worker.to_string();
        let call = client.deregister_worker(proto::DeregisterWorkerRequest { worker });
        shared_calls::deregister_worker(&self.remote, call).await
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        let mut client = self.client();
        let call = client.jobs(proto::JobsRequest {});
        values(self.remote.call(Reads, Duration::ZERO, call).await?.jobs)
    }
}
