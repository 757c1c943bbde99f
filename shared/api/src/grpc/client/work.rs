//! A controller on another host.

use async_trait::async_trait;
use dueline_domain::WorkerId;
use tonic::transport::Channel;

use super::{Remote, batch::values, errors::Effect::Reads, shared_calls};
use crate::{
    ApiError, Assignment, Controller, PollRequest, Registered, Registration, Report, ReportAck,
    check::WAIT_MAX,
    grpc::{
        message::{ASSIGNMENTS_MAX, MESSAGE_BYTES_MAX},
        proto::{self, controller_client},
    },
};

/// A controller on another host.
#[derive(Clone, Debug)]
pub struct ControllerClient {
    remote: Remote,
}

impl ControllerClient {
    pub(super) const fn new(remote: Remote) -> Self {
        Self { remote }
    }

    fn client(&self) -> controller_client::ControllerClient<Channel> {
        controller_client::ControllerClient::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

#[async_trait]
impl Controller for ControllerClient {
    async fn poll(&self, ask: PollRequest) -> Result<Vec<Assignment>, ApiError> {
        let wait = ask.wait.min(WAIT_MAX);
        let ask = PollRequest {
            wait,
            tasks_max: ask.tasks_max.min(ASSIGNMENTS_MAX),
            ..ask
        };
        let mut client = self.client();
        let call = client.poll(proto::PollRequest::from(ask));
        // Tasks of a lost answer come back when their claims lapse; asking again is all there is to do.
        values(self.remote.call(Reads, wait, call).await?.assignments)
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
}
