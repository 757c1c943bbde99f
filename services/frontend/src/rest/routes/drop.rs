//! `/v1/jobs/{job}/tasks:drop`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    operation::DropTasks,
    v1::{DropRequest, DroppedView, Problem},
};
use http::StatusCode;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{App, Failure, body::Body, query::Query, reply::json, target::OfJob};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(drop_tasks))
}

/// Drop the tasks of a job that no worker owns
///
/// They end as `dropped`, with who and why as their error; those that wait for other tasks stay. A call looks at up to a thousand
/// of them: repeat it with `next` of the answer as `cursor` until there is none. Pause the job first if its tasks must not run
/// meanwhile.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/tasks:drop", tag = "tasks", operation_id = "drop_tasks",
    params(("job" = String, Path, description = "Name of the job")),
    request_body = Option<DropRequest>,
    responses(
        (status = 200, description = "What the call has done", body = DroppedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn drop_tasks(
    State(app): State<Arc<App>>,
    OfJob(job): OfJob,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let asked: DropRequest = body.optional()?;
    let drop = DropTasks {
        job,
        tag: asked.tag.map(Arc::from),
        reason: asked.reason.map(Arc::from),
        cursor: asked.cursor.map(Arc::from),
    };
    let done = app.call(&body.call, drop).await?;
    Ok(json(StatusCode::OK, &DroppedView::from(done))?)
}
