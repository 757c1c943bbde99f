//! A controller on another host.

use async_trait::async_trait;
use dueline_domain::WorkerId;
use tonic::transport::Channel;

use super::{Remote, batch::values, errors::Effect::Reads, told};
use crate::{
    Alive, ApiError, Assignment, NextWork, Registration, Report, Reported, Work,
    grpc::{
        convert::bounds::WAIT_MAX,
        message::{ASSIGNMENTS_MAX, MESSAGE_BYTES_MAX},
        proto::{self, work_client},
    },
};

/// A controller on another host.
#[derive(Clone, Debug)]
pub struct WorkClient {
    remote: Remote,
}

impl WorkClient {
    pub(super) const fn new(remote: Remote) -> Self {
        Self { remote }
    }

    fn client(&self) -> work_client::WorkClient<Channel> {
        work_client::WorkClient::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

#[async_trait]
impl Work for WorkClient {
    async fn next(&self, ask: NextWork) -> Result<Vec<Assignment>, ApiError> {
        let wait = ask.wait.min(WAIT_MAX);
        let ask = NextWork {
            wait,
            tasks_max: ask.tasks_max.min(ASSIGNMENTS_MAX),
            ..ask
        };
        let mut client = self.client();
        let call = client.next(proto::NextWork::from(ask));
        // Tasks of a lost answer come back when their claims lapse; asking again is all there is to do.
        values(self.remote.call(Reads, wait, call).await?.assignments)
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        let send = |request| {
            let mut client = self.client();
            async move { client.report(request).await }
        };
        told::report(&self.remote, reports, send).await
    }

    async fn alive(&self, worker: Registration) -> Result<Alive, ApiError> {
        let mut client = self.client();
        let call = client.alive(proto::AliveRequest::from(worker));
        told::alive(&self.remote, call).await
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let mut client = self.client();
        let worker = worker.to_string();
        let call = client.leave(proto::LeaveRequest { worker });
        told::leave(&self.remote, call).await
    }
}
