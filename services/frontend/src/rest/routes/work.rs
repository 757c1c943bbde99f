//! `/v1/work:next`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ApiError, ErrorReason, Undelivered,
    operation::GetJob,
    v1::{AssignmentView, NextWorkRequest, Problem, WorkList},
};
use http::StatusCode;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{App, Failure, body::Body, query::Query, reply::json};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(next))
}

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
async fn next(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    let work = app.work()?;
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let ask: NextWorkRequest = body.object(ErrorReason::MissingBody)?;
    let poll = ask.into_poll()?;
    if let Some(frontend) = &app.frontend {
        // A poll for a mistyped name would wait in vain.
        for name in poll.jobs.iter().cloned() {
            frontend.call(&body.call, GetJob::definition(name)).await?;
        }
    }
    let assignments = work.poll(poll).await?;
    let undelivered = Undelivered::new(work.clone(), app.returns.clone(), &assignments);
    undelivered.follow();
    let tasks: Result<Vec<AssignmentView>, ApiError> =
        assignments.into_iter().map(TryInto::try_into).collect();
    let mut response = json(StatusCode::OK, &WorkList { tasks: tasks? })?;
    response.extensions_mut().insert(undelivered);
    Ok(response)
}
