//! `/v1/jobs/{job}/tasks/{id}`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    Call, ErrorReason,
    operation::{Cancel, GetFamily, GetJob, GetTask, Modify, Redrive},
    v1::{CancelRequest, FamilyView, Problem, TaskChange, TaskView},
};
use dueline_domain::Task;
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
        .routes(routes!(get, modify))
        .routes(routes!(family))
        .routes(routes!(cancel))
        .routes(routes!(redrive))
}

/// The answer that shows a task.
async fn show(app: &App, call: &Call, task: &Task) -> Result<Response, Failure> {
    let name = task.job.clone();
    let job = app.call(call, GetJob::definition(name)).await?.job;
    Ok(json(StatusCode::OK, &TaskView::new(task, &job.policy)?)?)
}

/// Show a task
///
/// With `wait` the answer comes when the task has ended, or as it is when the wait is over.
#[utoipa::path(
    get, path = "/v1/jobs/{job}/tasks/{id}", tag = "tasks", operation_id = "get_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
        ("wait" = Option<String>, Query, description = "How long to wait for its end, as in `30s`; at most an hour"),
    ),
    responses(
        (status = 200, description = "The task", body = TaskView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn get(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfTask(job, id): OfTask,
    uri: Uri,
) -> Result<Response, Failure> {
    let wait = Query::of(&uri, &["wait"])?.wait()?;
    let task = app.call(&call, GetTask { job, id, wait }).await?;
    show(&app, &call, &task).await
}

/// Show the family of a task
///
/// The task, and everything that waits for it, each right below what it waits for.
#[utoipa::path(
    get, path = "/v1/jobs/{job}/tasks/{id}/family", tag = "tasks", operation_id = "get_family",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
        ("limit" = Option<u32>, Query, description = "Most members on a page: 1 to 1000, 100 when absent"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("critical_path" = Option<bool>, Query, description = "Whether to find the critical path, for which the whole family is read"),
    ),
    responses(
        (status = 200, description = "A page", body = FamilyView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn family(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfTask(job, id): OfTask,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::of(&uri, &["limit", "cursor", "critical_path"])?;
    let (cursor, limit) = (query.cursor(), query.limit());
    let critical_path = query.flag("critical_path")?;
    let operation = GetFamily {
        job,
        id,
        cursor,
        limit,
        critical_path,
    };
    let page = app.call(&call, operation).await?;
    Ok(json(StatusCode::OK, &FamilyView::from(page))?)
}

/// Reschedule or modify a task that no worker owns
#[utoipa::path(
    patch, path = "/v1/jobs/{job}/tasks/{id}", tag = "tasks", operation_id = "modify_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = TaskChange,
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn modify(
    State(app): State<Arc<App>>,
    OfTask(job, id): OfTask,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let call = &body.call;
    let change: TaskChange = body.object(ErrorReason::NoChange)?;
    let change = change.into_modification(app.clock.now())?;
    let task = app.call(call, Modify { job, id, change }).await?;
    show(&app, call, &task).await
}

/// Cancel a task
///
/// One that a worker owns is left alone, unless `running` is `request`: then the worker is asked to stop. With `family`
/// everything that waits for the task, or for one of those, is cancelled too, and runs are asked to stop.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/tasks/{id}/cancel", tag = "tasks", operation_id = "cancel_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Option<CancelRequest>,
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn cancel(
    State(app): State<Arc<App>>,
    OfTask(job, id): OfTask,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let call = &body.call;
    let CancelRequest {
        running,
        reason,
        family,
    } = body.optional()?;
    let cancel = Cancel {
        job,
        id,
        running: running.map(Into::into).unwrap_or_default(),
        reason: reason.map(Arc::from),
        family,
    };
    let task = app.call(call, cancel).await?;
    show(&app, call, &task).await
}

/// Put a failed or trashed task back, with a fresh count of tries
///
/// With `with_followers` the tasks that were cancelled because of it, or because of one of those, wait for it again.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/tasks/{id}/redrive", tag = "tasks", operation_id = "redrive_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
        ("with_followers" = Option<bool>, Query, description = "Whether those that were cancelled because of it wait for it again"),
    ),
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn redrive(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfTask(job, id): OfTask,
    uri: Uri,
) -> Result<Response, Failure> {
    let with_followers = Query::of(&uri, &["with_followers"])?.flag("with_followers")?;
    let redrive = Redrive {
        job,
        id,
        with_followers,
    };
    let task = app.call(&call, redrive).await?;
    show(&app, &call, &task).await
}
