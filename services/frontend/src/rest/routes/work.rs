//! `/v1/work:next`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ApiError,
    v1::{AssignmentView, NextWorkRequest, Problem, WorkList},
};
use http::StatusCode;

use super::super::{App, Failure, call::Call, query::Query, reply::json};

/// Ask for work
///
/// The tasks of the answer are claimed for the worker. Each must be started within its claim timeout.
#[utoipa::path(
    post, path = "/v1/work:next", tag = "work", operation_id = "next_work",
    request_body = NextWorkRequest,
    responses(
        (status = 200, description = "Tasks, or none when the wait was over", body = WorkList),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn next(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Failure> {
    let work = app.work()?;
    Query::of(request.uri(), &[])?;
    let call = Call::read(&app, request).await?;
    let ask: NextWorkRequest = call.object("no_body")?;
    let assignments = work.next(ask.into_ask(app.limits.wait_max)?).await?;
    let tasks: Result<Vec<AssignmentView>, ApiError> =
        assignments.into_iter().map(TryInto::try_into).collect();
    Ok(json(StatusCode::OK, &WorkList { tasks: tasks? })?)
}
