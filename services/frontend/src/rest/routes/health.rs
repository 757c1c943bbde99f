//! `/healthz`, `/readyz`, `/metrics`, `/openapi.json`

use std::sync::Arc;

use axum::{extract::State, response::Response};
use dueline_api::{ApiError, ErrorKind, ErrorReason, v1::Problem};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{App, Failure, health::StoreConnection, reply::json};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(alive))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .routes(routes!(description))
}

/// How the process is.
#[derive(Serialize, ToSchema)]
struct HealthView {
    /// `ok`.
    status: &'static str,
    /// What an acknowledged write has survived; left out where nothing is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    /// Version of the program.
    version: &'static str,
    /// The latest changes of the connection to the store, oldest first; left out where there is none to lose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    store_connection: Vec<ConnectionView>,
    /// Problems that do not keep calls from being served, such as a host that cannot run tasks at present; left out where
    /// there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

/// A change of the connection to the store.
#[derive(Serialize, ToSchema)]
struct ConnectionView {
    /// `up` or `down`.
    state: &'static str,
    /// Milliseconds since then.
    ago_ms: u64,
}

fn change(change: &StoreConnection) -> ConnectionView {
    ConnectionView {
        state: if change.is_up { "up" } else { "down" },
        ago_ms: u64::try_from(change.ago.as_millis()).unwrap_or(u64::MAX),
    }
}

fn view(app: &App) -> HealthView {
    HealthView {
        status: "ok",
        durability: app.health.durability(),
        version: env!("CARGO_PKG_VERSION"),
        store_connection: app.health.store_connection().iter().map(change).collect(),
        problems: app.health.problems(),
    }
}

/// Whether the process lives
#[utoipa::path(
    get, path = "/healthz", tag = "server", operation_id = "healthz",
    responses((status = 200, description = "It does", body = HealthView))
)]
async fn alive(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &view(&app))?)
}

/// Whether calls can be served
#[utoipa::path(
    get, path = "/readyz", tag = "server", operation_id = "readyz",
    responses(
        (status = 200, description = "They can", body = HealthView),
        (status = 503, description = "Not now", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn ready(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    app.health.ready().await.map_err(|why| {
        ApiError::new(
            ErrorKind::Unavailable,
            ErrorReason::NotReady,
            format!("not ready: {why}"),
        )
    })?;
    Ok(json(StatusCode::OK, &view(&app))?)
}

/// Metrics in the Prometheus text format
#[utoipa::path(
    get, path = "/metrics", tag = "server", operation_id = "metrics",
    responses(
        (status = 200, description = "The metrics", body = String, content_type = "text/plain"),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    let render = app.metrics.as_ref().ok_or_else(|| {
        let message = "this server keeps no metrics";
        ApiError::new(ErrorKind::NotFound, ErrorReason::NoMetrics, message)
    })?;
    let mut response = Response::new(render().into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    Ok(response)
}

/// This description
#[utoipa::path(
    get, path = "/openapi.json", tag = "server", operation_id = "openapi",
    responses((status = 200, description = "An OpenAPI document", content_type = "application/json"))
)]
async fn description(State(app): State<Arc<App>>) -> Response {
    let mut response = Response::new(app.openapi.clone().into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}
