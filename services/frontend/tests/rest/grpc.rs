//! The bounds of the edge hold for gRPC, too.

use std::sync::Arc;

use axum::{Router, body::Body};
use dueline_api::grpc::{self, Services};
use dueline_domain::Timestamp;
use dueline_frontend::RestLimits;
use dueline_ports::fakes::{SeededRng, TokioClock};
use http::{HeaderMap, Request, Version};
use tower::ServiceExt as _;

use crate::{
    failures::{Broken, Trouble},
    kit::{START_MS, routes_of},
};

fn router(trouble: Trouble, limits: RestLimits) -> Router {
    let services = Services {
        frontend: Some(Arc::new(Broken(trouble))),
        ..Services::default()
    };
    let clock = Arc::new(TokioClock::new(Timestamp::clamped(START_MS)));
    let grpc = grpc::routes(services, clock, Arc::new(SeededRng::new(3)));
    routes_of(
        Arc::new(Broken(Trouble::Panics)),
        limits,
        grpc.into_axum_router(),
    )
}

/// Lists the jobs over gRPC; returns the headers of the answer.
async fn list_jobs(router: &Router, headers: &[(&'static str, &str)]) -> HeaderMap {
    let mut request = Request::post("/dueline.v1.Frontend/ListJobs")
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    // A message of no bytes in one frame.
    let request = request.body(Body::from(vec![0; 5])).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    response.headers().clone()
}

fn code(headers: &HeaderMap) -> tonic::Code {
    let status = tonic::Status::from_header_map(headers).expect("a status in the headers");
    status.code()
}

#[tokio::test(start_paused = true)]
async fn f_019_the_deadline_of_a_grpc_call_bounds_its_handling() {
    let router = router(Trouble::Stalled, RestLimits::default());
    let before = tokio::time::Instant::now();
    let answer = list_jobs(&router, &[("grpc-timeout", "200m")]).await;
    assert_eq!(code(&answer), tonic::Code::DeadlineExceeded);
    assert_eq!(before.elapsed().as_millis(), 200);
    let answer = list_jobs(&router, &[("grpc-timeout", "soon")]).await;
    assert_eq!(code(&answer), tonic::Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn f_020_a_panic_of_a_grpc_call_is_answered_with_the_id_of_its_request() {
    let router = router(Trouble::Panics, RestLimits::default());
    let answer = list_jobs(&router, &[("x-request-id", "r-7")]).await;
    assert_eq!(code(&answer), tonic::Code::Internal);
    assert_eq!(answer["x-request-id"], "r-7");
    let answer = list_jobs(&router, &[]).await;
    assert!(!answer["x-request-id"].is_empty());
}

#[tokio::test(start_paused = true)]
async fn too_many_grpc_calls_at_once_are_turned_away() {
    let limits = RestLimits {
        in_flight_max: 1,
        ..RestLimits::default()
    };
    let router = router(Trouble::Stalled, limits);
    let headers = [("grpc-timeout", "1S")];
    let (one, two) = tokio::join!(list_jobs(&router, &headers), list_jobs(&router, &headers));
    assert_eq!(code(&one), tonic::Code::DeadlineExceeded);
    assert_eq!(code(&two), tonic::Code::Unavailable);
}
