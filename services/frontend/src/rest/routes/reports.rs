//! `/v1/work/{job}/{id}/…`: what owners say about their tasks.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    Action, ApiError, ErrorKind, Report,
    v1::{Checkpoint, Complete, Extend, Fail, Owned, Problem, ReportedView, Trash},
};
use dueline_domain::{JobName, TaskId, WriteId};
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::super::{App, Failure, call::Call, query::Query, reply::json, target::OfTask};

/// Reads a body, makes a report of it, and answers what came of it.
async fn report<T: DeserializeOwned>(
    app: &App,
    OfTask(job, id): OfTask,
    request: Request,
    report: impl FnOnce(T, JobName, TaskId, WriteId) -> Result<Report, ApiError>,
) -> Result<Response, Failure> {
    let work = app.work()?;
    Query::of(request.uri(), &[])?;
    let call = Call::read(app, request).await?;
    let body: T = call.object("no_body")?;
    let report = report(body, job, id, app.rng.write_id())?;
    let answer = work.report(vec![report]).await.pop();
    let reported = answer.unwrap_or_else(|| {
        let message = "the status controller gave no answer";
        Err(ApiError::new(ErrorKind::Internal, "no_answer", message))
    })?;
    Ok(json(StatusCode::OK, &ReportedView::from(reported))?)
}

/// Begin the run of a claimed task
///
/// From here on a try is used.
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/start", tag = "work", operation_id = "start_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Owned,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn start(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Owned, job, id, write| {
        Ok(body.into_report(job, id, Action::Start, || write))
    })
    .await
}

/// Say that a run goes on
///
/// The answer tells whether a user asked to stop it.
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/heartbeat", tag = "work", operation_id = "heartbeat_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Owned,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Owned, job, id, write| {
        Ok(body.into_report(job, id, Action::Heartbeat, || write))
    })
    .await
}

/// Store what a later run shall get instead of the payload
///
/// Counts as a heartbeat.
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/checkpoint", tag = "work", operation_id = "checkpoint_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Checkpoint,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn checkpoint(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Checkpoint, job, id, write| {
        body.into_report(job, id, || write)
    })
    .await
}

/// Say that a run succeeded
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/complete", tag = "work", operation_id = "complete_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Complete,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Complete, job, id, write| {
        body.into_report(job, id, || write)
    })
    .await
}

/// Say that a run did not succeed
///
/// It is tried again while tries are left, unless it is `fatal`.
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/fail", tag = "work", operation_id = "fail_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Fail,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn fail(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Fail, job, id, write| {
        body.into_report(job, id, || write)
    })
    .await
}

/// Give a task back
///
/// No try is used.
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/abandon", tag = "work", operation_id = "abandon_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Owned,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn abandon(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Owned, job, id, write| {
        Ok(body.into_report(job, id, Action::Abandon, || write))
    })
    .await
}

/// Take a task off for good
///
/// It is kept for review and can be redriven.
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/trash", tag = "work", operation_id = "trash_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Trash,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn trash(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Trash, job, id, write| {
        body.into_report(job, id, || write)
    })
    .await
}

/// Set the end of the lease anew
#[utoipa::path(
    post, path = "/v1/work/{job}/{id}/extend", tag = "work", operation_id = "extend_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("id" = String, Path, description = "Id of the task"),
    ),
    request_body = Extend,
    responses(
        (status = 200, description = "Stored durably", body = ReportedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn extend(
    State(app): State<Arc<App>>,
    task: OfTask,
    request: Request,
) -> Result<Response, Failure> {
    report(&app, task, request, |body: Extend, job, id, write| {
        body.into_report(job, id, || write)
    })
    .await
}
