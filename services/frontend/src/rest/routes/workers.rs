//! `/v1/workers`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ErrorReason,
    operation::ListWorkers,
    v1::{AliveView, Problem, WorkerList, WorkerRegistration},
};
use http::{StatusCode, Uri};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{
    App, Failure,
    body::Body,
    query::Query,
    reply::{empty, json},
    target::{Context, OfWorker},
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(alive, list))
        .routes(routes!(leave))
}

/// Register a worker, or renew it
#[utoipa::path(
    post, path = "/v1/workers", tag = "work", operation_id = "register_worker",
    request_body = WorkerRegistration,
    responses(
        (status = 200, description = "Registered; renew it as often as this says", body = AliveView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn alive(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    let work = app.work()?;
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let registration: WorkerRegistration = body.object(ErrorReason::MissingBody)?;
    let alive = work.register_worker(registration.try_into()?).await?;
    Ok(json(StatusCode::OK, &AliveView::from(alive))?)
}

/// List the workers that are registered
///
/// Or other processes: every process of a deployment registers with its kind.
#[utoipa::path(
    get, path = "/v1/workers", tag = "work", operation_id = "list_workers",
    params(("kind" = Option<String>, Query, description = "`executor` when absent, `controller`, `consumer`, `frontend`, `status-controller`, or `all`")),
    responses(
        (status = 200, description = "The workers", body = WorkerList),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn list(
    State(app): State<Arc<App>>,
    Context(call): Context,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::of(&uri, &["kind"])?;
    let operation = ListWorkers::of_kind(query.kind())?;
    let workers = app.call(&call, operation).await?;
    let workers = workers.into_iter().map(Into::into).collect();
    Ok(json(StatusCode::OK, &WorkerList { workers })?)
}

/// Deregister a worker; tasks that it still owns are reclaimed at once
#[utoipa::path(
    delete, path = "/v1/workers/{id}", tag = "work", operation_id = "remove_worker",
    params(("id" = String, Path, description = "Id of the worker")),
    responses(
        (status = 204, description = "Gone"),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn leave(
    State(app): State<Arc<App>>,
    OfWorker(id): OfWorker,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    app.work()?.deregister_worker(&id).await?;
    Ok(empty())
}
