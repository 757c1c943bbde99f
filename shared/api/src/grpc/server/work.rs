//! A controller over gRPC.

use std::sync::Arc;

use dueline_runtime::TaskGroup;
use futures_util::{StreamExt as _, stream::BoxStream};
use tonic::{Request, Response, Status, Streaming};

use super::{batch::each, status::report_response, stream};
use crate::{
    Controller, PollRequest, Registration, Report, Undelivered,
    grpc::{
        convert::field::{batch, worker_id},
        message::ASSIGNMENTS_MAX,
        proto::{self, controller_server},
    },
};

/// Makes a controller reachable.
#[derive(Clone)]
pub struct ControllerServer {
    work: Arc<dyn Controller>,
    /// Tasks of broken streams, and of answers that were not written, on their way back.
    returns: TaskGroup,
}

impl ControllerServer {
    /// Serves `work`. A [`Controller::poll`] that answers an error ends the streams that wait on it: this is how a
    /// controller that stops lets its clients go.
    pub fn new(work: Arc<dyn Controller>) -> Self {
        let returns = TaskGroup::new();
        Self { work, returns }
    }
}

#[tonic::async_trait]
impl controller_server::Controller for ControllerServer {
    async fn poll(
        &self,
        request: Request<proto::PollRequest>,
    ) -> Result<Response<proto::PollResponse>, Status> {
        let mut ask = PollRequest::try_from(request.into_inner())?;
        ask.tasks_max = ask.tasks_max.min(ASSIGNMENTS_MAX);
        let assignments = self.work.poll(ask).await?;
        let undelivered = Undelivered::new(self.work.clone(), self.returns.clone(), &assignments);
        let assignments = assignments.into_iter().map(Into::into).collect();
        let mut response = Response::new(proto::PollResponse { assignments });
        response.extensions_mut().insert(undelivered);
        Ok(response)
    }

    type StreamStream = BoxStream<'static, Result<proto::StreamResponse, Status>>;

    async fn stream(
        &self,
        request: Request<Streaming<proto::StreamRequest>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let (work, returns) = (self.work.clone(), self.returns.clone());
        let assignments = stream::assignments(work, returns, request.into_inner());
        Ok(Response::new(assignments.boxed()))
    }

    async fn report(
        &self,
        request: Request<proto::ReportRequest>,
    ) -> Result<Response<proto::ReportResponse>, Status> {
        let reports = request.into_inner().reports;
        batch("reports", reports.len())?;
        let answers = each(reports, Report::try_from, |reports| {
            self.work.report(reports)
        })
        .await;
        Ok(Response::new(report_response(answers)))
    }

    async fn register_worker(
        &self,
        request: Request<proto::RegisterWorkerRequest>,
    ) -> Result<Response<proto::RegisterWorkerResponse>, Status> {
        let worker = Registration::try_from(request.into_inner())?;
        Ok(Response::new(
            self.work.register_worker(worker).await?.into(),
        ))
    }

    async fn deregister_worker(
        &self,
        request: Request<proto::DeregisterWorkerRequest>,
    ) -> Result<Response<proto::DeregisterWorkerResponse>, Status> {
        let worker = worker_id("worker", &request.into_inner().worker)?;
        self.work.deregister_worker(&worker).await?;
        Ok(Response::new(proto::DeregisterWorkerResponse {}))
    }
}
