//! The status controller over gRPC.

use std::sync::Arc;

use dueline_domain::TaskRef;
use tonic::{Request, Response};

use super::batch::each;
use crate::{
    ApiError, Registration, Report, ReportAck, StatusController,
    grpc::{
        convert::field::{batch, worker_id},
        proto::{self, claim_result, report_result, status_controller_server},
    },
};

/// Makes a status controller reachable.
#[derive(Clone)]
pub struct StatusControllerServer(Arc<dyn StatusController>);

impl StatusControllerServer {
    /// Serves `status`.
    pub fn new(status: Arc<dyn StatusController>) -> Self {
        Self(status)
    }
}

#[tonic::async_trait]
impl status_controller_server::StatusController for StatusControllerServer {
    async fn claim(
        &self,
        request: Request<proto::ClaimRequest>,
    ) -> Result<Response<proto::ClaimResponse>, tonic::Status> {
        let request = request.into_inner();
        let worker = worker_id("worker", &request.worker)?;
        batch("messages", request.messages.len())?;
        let start = request.start;
        let claim = |messages| self.0.claim(&worker, messages, start);
        let answers = each(request.messages, TaskRef::try_from, claim).await;
        let result = |answer| proto::ClaimResult {
            result: Some(match answer {
                Ok(claimed) => claim_result::Result::Assignment(proto::Assignment::from(claimed)),
                Err(error) => claim_result::Result::Error(proto::ApiError::from(error)),
            }),
        };
        let results = answers.into_iter().map(result).collect();
        Ok(Response::new(proto::ClaimResponse { results }))
    }

    async fn report(
        &self,
        request: Request<proto::ReportRequest>,
    ) -> Result<Response<proto::ReportResponse>, tonic::Status> {
        let reports = request.into_inner().reports;
        batch("reports", reports.len())?;
        let answers = each(reports, Report::try_from, |reports| self.0.report(reports)).await;
        Ok(Response::new(report_response(answers)))
    }

    async fn register_worker(
        &self,
        request: Request<proto::RegisterWorkerRequest>,
    ) -> Result<Response<proto::RegisterWorkerResponse>, tonic::Status> {
        let worker = Registration::try_from(request.into_inner())?;
        Ok(Response::new(self.0.register_worker(worker).await?.into()))
    }

    async fn deregister_worker(
        &self,
        request: Request<proto::DeregisterWorkerRequest>,
    ) -> Result<Response<proto::DeregisterWorkerResponse>, tonic::Status> {
        let worker = worker_id("worker", &request.into_inner().worker)?;
        self.0.deregister_worker(&worker).await?;
        Ok(Response::new(proto::DeregisterWorkerResponse {}))
    }

    async fn jobs(
        &self,
        _: Request<proto::JobsRequest>,
    ) -> Result<Response<proto::JobsResponse>, tonic::Status> {
        let jobs = self.0.jobs().await?.into_iter();
        let jobs = jobs.map(Into::into).collect();
        Ok(Response::new(proto::JobsResponse { jobs }))
    }
}

/// Answers to reports, which two services take.
pub(super) fn report_response(answers: Vec<Result<ReportAck, ApiError>>) -> proto::ReportResponse {
    let result = |answer| proto::ReportResult {
        result: Some(match answer {
            Ok(reported) => report_result::Result::Ack(proto::ReportAck::from(reported)),
            Err(error) => report_result::Result::Error(proto::ApiError::from(error)),
        }),
    };
    proto::ReportResponse {
        results: answers.into_iter().map(result).collect(),
    }
}
