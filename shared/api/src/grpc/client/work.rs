//! A controller on another host.

use std::time::Duration;

use async_trait::async_trait;
use dueline_domain::{WorkerId, limits};
use tonic::transport::Channel;

use super::{
    Remote,
    batch::{answers, send_in_chunks, values},
    errors::Effect::{Reads, Writes},
    status::{alive, reported},
};
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

    async fn report_some(&self, reports: Vec<proto::Report>) -> Vec<Result<Reported, ApiError>> {
        let asked = reports.len();
        let mut client = self.client();
        let call = client.report(proto::ReportRequest { reports });
        let answered = self.remote.call(Writes, Duration::ZERO, call).await;
        answers(asked, answered.map(|answer| answer.results), reported)
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
}
