//! A controller over gRPC.

use std::sync::Arc;

use dueline_runtime::TaskGroup;
use futures_util::{StreamExt as _, stream::BoxStream};
use tonic::{Request, Response, Status, Streaming};

use super::{batch::each, status::report_response, stream};
use crate::{
    NextWork, Registration, Report, Work,
    grpc::{
        convert::bounds::{batch, worker_id},
        message::ASSIGNMENTS_MAX,
        proto::{self, work_server},
    },
};

/// Makes a controller reachable.
#[derive(Clone)]
pub struct WorkServer {
    work: Arc<dyn Work>,
    /// Tasks of broken streams on their way back.
    returns: TaskGroup,
}

impl WorkServer {
    /// Serves `work`. A [`Work::next`] that answers an error ends the streams that wait on it: this is how a
    /// controller that stops lets its clients go.
    pub fn new(work: Arc<dyn Work>) -> Self {
        let returns = TaskGroup::new();
        Self { work, returns }
    }
}

#[tonic::async_trait]
impl work_server::Work for WorkServer {
    async fn next(
        &self,
        request: Request<proto::NextWork>,
    ) -> Result<Response<proto::NextResponse>, Status> {
        let mut ask = NextWork::try_from(request.into_inner())?;
        ask.tasks_max = ask.tasks_max.min(ASSIGNMENTS_MAX);
        let assignments = self.work.next(ask).await?.into_iter();
        let assignments = assignments.map(Into::into).collect();
        Ok(Response::new(proto::NextResponse { assignments }))
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
        let answers = each(reports, |reports: Vec<Report>| self.work.report(reports)).await;
        Ok(Response::new(report_response(answers)))
    }

    async fn alive(
        &self,
        request: Request<proto::AliveRequest>,
    ) -> Result<Response<proto::AliveResponse>, Status> {
        let worker = Registration::try_from(request.into_inner())?;
        Ok(Response::new(self.work.alive(worker).await?.into()))
    }

    async fn leave(
        &self,
        request: Request<proto::LeaveRequest>,
    ) -> Result<Response<proto::LeaveResponse>, Status> {
        let worker = worker_id("worker", &request.into_inner().worker)?;
        self.work.leave(&worker).await?;
        Ok(Response::new(proto::LeaveResponse {}))
    }
}
