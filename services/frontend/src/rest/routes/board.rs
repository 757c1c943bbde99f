//! A board: tasks are looked at, waited for, and taken by their ids.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ErrorReason,
    operation::{ExplainTask, GetLease, GetRuns, GetScheduling, WaitAny},
    v1::{
        AssignmentView, ClaimRequest, ClaimableList, ExplanationView, LeaseView, Problem, RunsView,
        SchedulingView,
    },
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
        .routes(routes!(explain))
        .routes(routes!(wait_any))
        .routes(routes!(scheduling))
        .routes(routes!(runs))
}

/// Wait until a task can be claimed
///
/// The answer comes with the first tasks of these jobs that can be claimed, or without any when the wait is over. A task of
/// the answer may be gone by the time its claim arrives.
#[utoipa::path(
    get, path = "/v1/claimable", tag = "work", operation_id = "wait_any",
    params(
        ("job" = Vec<String>, Query, description = "Name of a job; repeated or separated by commas, 1 to 100"),
        ("wait" = Option<String>, Query, description = "How long to wait, as in `30s`; at most an hour, not at all when absent"),
        ("limit" = Option<u32>, Query, description = "Most tasks: 1 to 1000, 100 when absent"),
    ),
    responses(
        (status = 200, description = "Tasks, or none when the wait was over", body = ClaimableList),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn wait_any(
    State(app): State<Arc<App>>,
    Context(call): Context,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::of(&uri, &["job", "wait", "limit"])?;
    let operation = WaitAny {
        jobs: query.jobs()?,
        wait: query.wait()?.unwrap_or_default(),
        limit: query.limit(),
    };
    let tasks = app.call(&call, operation).await?;
    Ok(json(StatusCode::OK, &ClaimableList::from(tasks))?)
}

/// Show what the scheduler knows of a task
#[utoipa::path(
    get, path = "/v1/jobs/{job}/tasks/{id}/scheduling", tag = "tasks", operation_id = "get_scheduling",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    responses(
        (status = 200, description = "The scheduling record", body = SchedulingView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn scheduling(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfTask(job, id): OfTask,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let record = app.call(&call, GetScheduling { job, id }).await?;
    Ok(json(StatusCode::OK, &SchedulingView::from(record))?)
}

/// Show the runs of a task that are over
///
/// Oldest first, the successful one among them.
#[utoipa::path(
    get, path = "/v1/jobs/{job}/tasks/{id}/runs", tag = "tasks", operation_id = "get_runs",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    responses(
        (status = 200, description = "The runs", body = RunsView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn runs(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfTask(job, id): OfTask,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let runs = app.call(&call, GetRuns { job, id }).await?;
    Ok(json(StatusCode::OK, &RunsView::from(runs))?)
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
        (status = 200, description = "The task is the owner's, durably", body = AssignmentView),
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
    let claim: ClaimRequest = body.object(ErrorReason::MissingBody)?;
    let claimed = app.call(&body.call, claim.into_claim(job, id)?).await?;
    Ok(json(StatusCode::OK, &AssignmentView::try_from(claimed)?)?)
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

/// Say why a task is not running
#[utoipa::path(
    get, path = "/v1/jobs/{job}/tasks/{id}/explain", tag = "tasks", operation_id = "explain_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    responses(
        (status = 200, description = "The first fact that holds the task up, and what ends it", body = ExplanationView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn explain(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfTask(job, id): OfTask,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let explanation = app.call(&call, ExplainTask { job, id }).await?;
    Ok(json(StatusCode::OK, &ExplanationView::from(explanation))?)
}
