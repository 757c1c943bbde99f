//! `/v1/jobs/{job}/tasks/{id}/claim` and `…/lease`: a task is taken by its id.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ErrorReason,
    operation::GetLease,
    v1::{ClaimRequest, ClaimedView, LeaseView, Problem},
};
use http::{StatusCode, Uri};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{
    App, Failure,
    body::Body,
    query::Query,
    reply::json,
    target::{Context, OfTask},
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(claim))
        .routes(routes!(lease))
}

/// Claim a task
///
/// The task must be enqueued or due. Its message becomes stale. The answer holds the token that every report shows; reports
/// that name their `owner` are answered as on a board.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/tasks/{id}/claim", tag = "work", operation_id = "claim_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = ClaimRequest,
    responses(
        (status = 200, description = "The task is the owner's, durably", body = ClaimedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn claim(
    State(app): State<Arc<App>>,
    OfTask(job, id): OfTask,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let claim: ClaimRequest = body.object(ErrorReason::NoBody)?;
    let claimed = app.call(&body.call, claim.into_claim(job, id)?).await?;
    Ok(json(StatusCode::OK, &ClaimedView::try_from(claimed)?)?)
}

/// Show how long the claim of a task still lasts
#[utoipa::path(
    get, path = "/v1/jobs/{job}/tasks/{id}/lease", tag = "work", operation_id = "get_lease",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    responses(
        (status = 200, description = "The claim, also when there is none", body = LeaseView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn lease(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfTask(job, id): OfTask,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let lease = app.call(&call, GetLease { job, id }).await?;
    Ok(json(StatusCode::OK, &LeaseView::from(lease))?)
}
