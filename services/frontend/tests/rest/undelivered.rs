//! Answers with claimed tasks that no client reads.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body, response::Response};
use dueline_api::grpc::{self, Services};
use dueline_frontend::RestLimits;
use dueline_ports::fakes::SeededRng;
use http::{Request, Version};
use tower::ServiceExt as _;

use crate::kit::{Kit, routes_of};

async fn ask_rest(router: &Router) -> Response {
    let ask = r#"{"worker": "host@1", "jobs": ["mail"]}"#;
    let request = Request::post("/v1/work:next")
        .header("content-type", "application/json")
        .body(Body::from(ask))
        .unwrap();
    router.clone().oneshot(request).await.unwrap()
}

async fn ask_grpc(router: &Router) -> Response {
    // The fields 1 (worker), 2 (jobs), 4 to 6 (counts and weights) of the question, in one frame.
    let ask = [
        b"\x0a\x06host@1\x12\x04mail".as_slice(),
        &[0x20, 1, 0x28, 1, 0x30, 1],
    ]
    .concat();
    let length = u8::try_from(ask.len()).unwrap();
    let frame = [&[0, 0, 0, 0, length], ask.as_slice()].concat();
    let request = Request::post("/dueline.v1.Controller/Poll")
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .body(Body::from(frame))
        .unwrap();
    router.clone().oneshot(request).await.unwrap()
}

async fn state(kit: &Kit, path: &str) -> String {
    // Tasks are given back beside the call.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let task = kit.get(path).await.expect(200);
    task.text("state").to_owned()
}

/// Asks for a task and drops the answer; then asks for another one and reads the answer.
async fn drop_one_and_read_one(kit: &Kit, ask: impl AsyncFn() -> Response) {
    let path = kit.submit("{}").await;
    let dropped = ask().await;
    assert_eq!(state(kit, &path).await, "claimed");
    drop(dropped);
    assert_eq!(state(kit, &path).await, "enqueued", "at once");
    let path = kit.submit("{}").await;
    let read = ask().await;
    let body = axum::body::to_bytes(read.into_body(), 1 << 20).await;
    assert!(!body.unwrap().is_empty());
    assert_eq!(state(kit, &path).await, "claimed");
}

#[tokio::test(start_paused = true)]
async fn f_117_a_task_goes_back_at_once_when_its_answer_is_never_written() {
    let kit = Kit::with_job().await;
    drop_one_and_read_one(&kit, async || ask_rest(&kit.router).await).await;
}

#[tokio::test(start_paused = true)]
async fn f_117_a_task_goes_back_at_once_when_its_grpc_answer_is_never_written() {
    let kit = Kit::with_job().await;
    let services = Services {
        work: Some(kit.work.clone()),
        ..Services::default()
    };
    let routes = grpc::routes(services, kit.clock.clone(), Arc::new(SeededRng::new(3)));
    let routes = routes.into_axum_router();
    let router = routes_of(kit.frontend.clone(), RestLimits::default(), routes);
    drop_one_and_read_one(&kit, async || ask_grpc(&router).await).await;
}
