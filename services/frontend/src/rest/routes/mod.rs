//! The routes, one file per resource, and their description.

mod batch;
mod board;
mod drop;
mod health;
mod jobs;
mod reports;
mod schedules;
mod task;
mod tasks;
mod watch;
mod work;
mod workers;

use std::sync::Arc;

use axum::extract::Request;
use dueline_api::{
    ApiError, ErrorKind, ErrorReason,
    v1::{ExecConfig, HttpConfig, InputView, Problem},
};
use http::StatusCode;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::{App, Failure, target::no_job};

/// The head of the description.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Dueline",
        description = "Hand in work, and it runs at the right time, at least once. Every failure is a problem \
            document with `kind`, `reason` and `retryable`. Headers that any call may carry: `Dueline-Timeout-Ms` \
            bounds its handling, `Dueline-Caller` says who calls, `traceparent` is kept with the tasks it submits, \
            `X-Request-Id` comes back with a failure."
    ),
    components(schemas(Problem, ExecConfig, HttpConfig, InputView)),
    tags(
        (name = "jobs", description = "Named definitions that tasks belong to"),
        (name = "tasks", description = "Units of work"),
        (name = "schedules", description = "They create tasks by a rule"),
        (name = "work", description = "For workers: ask for work and report about it"),
        (name = "server", description = "The server itself"),
    )
)]
struct Description;

/// All routes.
pub(super) fn all() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(jobs::routes())
        .merge(tasks::routes())
        .merge(batch::routes())
        .merge(drop::routes())
        .merge(task::routes())
        .merge(board::routes())
        .merge(watch::routes())
        .merge(schedules::routes())
        .merge(work::routes())
        .merge(reports::routes())
        .merge(workers::routes())
        .merge(health::routes())
}

/// The description of REST `/v1` as an OpenAPI document, in pretty JSON.
pub fn openapi() -> String {
    let mut text = all()
        .into_openapi()
        .to_pretty_json()
        .expect("a description made of types can be written");
    text.push('\n');
    text
}

/// No route has this path.
pub(super) async fn unknown(request: Request) -> Failure {
    let path = request.uri().path();
    if path == "/v1/jobs/" || path.starts_with("/v1/jobs//") {
        return no_job().into();
    }
    let path: String = path.chars().take(128).collect();
    let message = format!("there is no route '{path}'");
    ApiError::new(ErrorKind::NotFound, ErrorReason::UnknownRoute, message).into()
}

/// A route has this path, but not for this method.
pub(super) async fn wrong_method(request: Request) -> Failure {
    let message = format!("{} is not allowed here", request.method());
    let error = ApiError::new(ErrorKind::Invalid, ErrorReason::MethodNotAllowed, message);
    Failure::with_status(error, StatusCode::METHOD_NOT_ALLOWED)
}
