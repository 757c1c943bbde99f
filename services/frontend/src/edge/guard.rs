//! What holds for every call, through REST and gRPC alike: how many there may be, how long each may take, that even a
//! panic is answered, and that the answer carries the id of its request.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use dueline_api::{ApiError, Call, ErrorKind, ErrorReason, grpc};
use dueline_ports::Rng;
use futures_util::FutureExt as _;
use http::{HeaderValue, Uri};
use tokio::time::timeout_at;

use super::{
    context,
    delivery::{self, Answers},
    gate::{Gate, Place},
};
use crate::rest::{Failure, RestLimits, render};

/// Calls between the programs of a deployment that wait for work, and the reads that may wait for a task or a change.
const WAITING_RPCS: [&str; 6] = [
    "/dueline.v1.Controller/Poll",
    "/dueline.v1.Controller/Stream",
    "/dueline.v1.Queue/Receive",
    "/dueline.v1.Frontend/GetTask",
    "/dueline.v1.Frontend/WaitAny",
    "/dueline.v1.Frontend/ReadChanges",
];

/// Bounds the calls of one process.
pub(crate) struct Guard {
    limits: RestLimits,
    rng: Arc<dyn Rng>,
    in_flight: Gate,
    waiting: Gate,
}

impl Guard {
    pub(crate) fn new(limits: RestLimits, rng: Arc<dyn Rng>) -> Self {
        Self {
            in_flight: Gate::new(limits.in_flight_max),
            waiting: Gate::new(limits.waiting_max),
            limits,
            rng,
        }
    }

    /// A middleware for a router of REST and gRPC. Handlers find a [`Call`] among the request's extensions.
    pub(crate) async fn middleware(
        State(guard): State<Arc<Self>>,
        request: Request,
        next: Next,
    ) -> Response {
        let request_id = context::request_id(request.headers(), &*guard.rng);
        let is_grpc = grpc::is_grpc(request.headers());
        let answers = request.extensions().get::<Answers>().cloned();
        let mut response = match guard.handle(request, request_id.clone(), next).await {
            Ok(response) => response,
            Err(error) if is_grpc => grpc::error_response(error),
            Err(error) => Failure::from(error).into_response(),
        };
        if response.status().as_u16() >= 400 {
            render(&mut response, &request_id);
        }
        if let Ok(value) = HeaderValue::try_from(&*request_id) {
            response.headers_mut().insert(Call::REQUEST_ID, value);
        }
        delivery::follow(response, answers)
    }

    async fn handle(
        &self,
        mut request: Request,
        request_id: Arc<str>,
        next: Next,
    ) -> Result<Response, ApiError> {
        let waits = waits(request.uri());
        let mut time_max = self.limits.handling_max;
        if waits {
            time_max += dueline_api::check::WAIT_MAX;
        }
        let call = context::call(request.headers(), request_id, time_max)?;
        let _place = self.admit(request.uri(), waits)?;
        let deadline = call.deadline;
        request.extensions_mut().insert(call);
        let run = AssertUnwindSafe(next.run(request)).catch_unwind();
        let ended = match deadline {
            Some(deadline) => timeout_at(deadline, run).await,
            None => Ok(run.await),
        };
        match ended {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_panic)) => {
                // The panic hook has logged where it was.
                let message = "the server has failed; its log has the details";
                Err(ApiError::new(
                    ErrorKind::Internal,
                    ErrorReason::Panic,
                    message,
                ))
            }
            Err(_elapsed) => {
                let message =
                    "no answer within the time of the call; the call may have taken effect";
                Err(ApiError::new(
                    ErrorKind::Deadline,
                    ErrorReason::Deadline,
                    message,
                ))
            }
        }
    }

    /// A place for the call, or an error for now. Health and metrics are always answered.
    fn admit(&self, uri: &Uri, waits: bool) -> Result<Option<Place<'_>>, ApiError> {
        let path = uri.path();
        if !path.starts_with("/v1/") && !path.starts_with("/dueline.v1.") {
            return Ok(None);
        }
        let gate = if waits {
            &self.waiting
        } else {
            &self.in_flight
        };
        let place = gate.enter().ok_or_else(|| {
            let message = "too many calls at once";
            ApiError::new(ErrorKind::Unavailable, ErrorReason::Overloaded, message)
                .with_retry_after(Duration::from_secs(1))
        })?;
        Ok(Some(place))
    }
}

/// Whether a call may wait for something to happen.
fn waits(uri: &Uri) -> bool {
    let path = uri.path();
    path == "/v1/work:next"
        || uri.query().is_some_and(|query| query.contains("wait="))
        || WAITING_RPCS.contains(&path)
}
