//! A queue over gRPC.

use std::sync::Arc;

use dueline_domain::TaskRef;
use dueline_ports::{Receipt, TaskQueue};
use tonic::{Request, Response, Status};

use super::batch::each;
use crate::{
    ApiError,
    grpc::{
        convert::field::{self, batch, job_name, millis},
        proto::{self, queue_server},
    },
};

/// Makes the queues of a server reachable.
#[derive(Clone)]
pub struct QueueServer(Arc<dyn TaskQueue>);

impl QueueServer {
    /// Serves `queue`.
    pub fn new(queue: Arc<dyn TaskQueue>) -> Self {
        Self(queue)
    }
}

#[tonic::async_trait]
impl queue_server::Queue for QueueServer {
    async fn ensure(
        &self,
        request: Request<proto::EnsureRequest>,
    ) -> Result<Response<proto::EnsureResponse>, Status> {
        let job = job_name("job", &request.into_inner().job)?;
        self.0.ensure(&job).await.map_err(ApiError::from)?;
        let visibility_timeout_ms = millis(self.0.visibility_timeout());
        Ok(Response::new(proto::EnsureResponse {
            visibility_timeout_ms,
        }))
    }

    async fn send(
        &self,
        request: Request<proto::SendRequest>,
    ) -> Result<Response<proto::SendResponse>, Status> {
        let messages = request.into_inner().messages;
        batch("messages", messages.len())?;
        let send = async |messages: Vec<TaskRef>| {
            let answers = self.0.send(messages).await.into_iter();
            answers.map(|a| a.map_err(ApiError::from)).collect()
        };
        let result = |answer: Result<(), ApiError>| proto::SendResult {
            error: answer.err().map(Into::into),
        };
        let results = each(messages, TaskRef::try_from, send)
            .await
            .into_iter()
            .map(result)
            .collect();
        Ok(Response::new(proto::SendResponse { results }))
    }

    async fn receive(
        &self,
        request: Request<proto::ReceiveRequest>,
    ) -> Result<Response<proto::ReceiveResponse>, Status> {
        let request = request.into_inner();
        let job = job_name("job", &request.job)?;
        let max = usize::try_from(request.messages_max).unwrap_or(usize::MAX);
        batch("messages_max", max)?;
        let wait = field::wait_at_most(request.wait_ms);
        let received = self.0.receive(&job, max, wait).await;
        let deliveries = received.map_err(ApiError::from)?.into_iter();
        Ok(Response::new(proto::ReceiveResponse {
            deliveries: deliveries.map(Into::into).collect(),
            visibility_timeout_ms: millis(self.0.visibility_timeout()),
        }))
    }

    async fn ack(
        &self,
        request: Request<proto::AckRequest>,
    ) -> Result<Response<proto::AckResponse>, Status> {
        let receipts = receipts(request.into_inner().receipts)?;
        self.0.ack(receipts).await.map_err(ApiError::from)?;
        Ok(Response::new(proto::AckResponse {}))
    }

    async fn nack(
        &self,
        request: Request<proto::NackRequest>,
    ) -> Result<Response<proto::NackResponse>, Status> {
        let request = request.into_inner();
        let receipts = receipts(request.receipts)?;
        let delay = std::time::Duration::from_millis(request.delay_ms);
        let returned = self.0.nack(receipts, delay).await;
        returned.map_err(ApiError::from)?;
        Ok(Response::new(proto::NackResponse {}))
    }

    async fn extend(
        &self,
        request: Request<proto::ExtendRequest>,
    ) -> Result<Response<proto::ExtendResponse>, Status> {
        let receipts = receipts(request.into_inner().receipts)?;
        self.0.extend(receipts).await.map_err(ApiError::from)?;
        Ok(Response::new(proto::ExtendResponse {}))
    }

    async fn depth(
        &self,
        request: Request<proto::DepthRequest>,
    ) -> Result<Response<proto::DepthResponse>, Status> {
        let job = job_name("job", &request.into_inner().job)?;
        let depth = self.0.depth(&job).await.map_err(ApiError::from)?;
        Ok(Response::new(proto::DepthResponse {
            visible: depth.visible,
            in_flight: depth.in_flight,
        }))
    }
}

/// Receipts of a request.
fn receipts(receipts: Vec<proto::Receipt>) -> Result<Vec<Receipt>, ApiError> {
    batch("receipts", receipts.len())?;
    receipts.into_iter().map(Receipt::try_from).collect()
}
