//! `/v1/jobs/{job}/tasks:batch`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ApiError, ErrorReason,
    operation::Submit,
    v1::{self, BatchItem, BatchResult, Problem, TaskSubmit},
};
use dueline_domain::NewTask;
use http::StatusCode;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{
    App, Failure,
    body::{Body, is_nothing, nothing},
    query::Query,
    reply::json,
    target::OfJob,
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(submit))
}

/// After so many items another call gets its turn.
const ITEMS_AT_ONCE: usize = 256;

/// Submit up to 10 000 tasks
///
/// The body is a JSON array, or one task per line with the content type `application/x-ndjson`. Each item has a result
/// of its own: one that is wrong does not touch the others.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/tasks:batch", tag = "tasks", operation_id = "submit_batch",
    params(("job" = String, Path, description = "Name of the job")),
    request_body(content(
        (Vec<TaskSubmit> = "application/json"),
        (TaskSubmit = "application/x-ndjson"),
    )),
    responses(
        (status = 200, description = "A result per item", body = BatchResult),
        (status = "default", description = "Failed as a whole", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn submit(
    State(app): State<Arc<App>>,
    OfJob(job): OfJob,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read_batch(&app, request).await?;
    if is_nothing(&body.bytes) {
        return Err(nothing(ErrorReason::NoTask).into());
    }
    let items = v1::parse_items(&body.bytes, body.ndjson)?;
    let now = app.clock.now();
    let parse = |item: &[u8]| -> Result<NewTask, ApiError> {
        if is_nothing(item) {
            return Err(nothing(ErrorReason::NoTask));
        }
        let spec: TaskSubmit = v1::parse(item)?;
        spec.into_task(job.clone(), || app.rng.task_id(now))
    };

    let mut tasks = Vec::with_capacity(items.len());
    let mut results: Vec<Option<BatchItem>> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match parse(item) {
            Ok(task) => {
                tasks.push(task);
                results.push(None);
            }
            Err(error) => results.push(Some(BatchItem::new(index, Err(error)))),
        }
        if index % ITEMS_AT_ONCE == ITEMS_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
    }
    if !tasks.is_empty() {
        let answers = app.call(&body.call, Submit { tasks }).await?;
        let mut answers = answers.into_iter();
        for (index, result) in results.iter_mut().enumerate() {
            if result.is_none() {
                *result = answers.next().map(|answer| BatchItem::new(index, answer));
            }
        }
    }
    let results = results.into_iter().flatten().collect();
    Ok(json(StatusCode::OK, &BatchResult { results })?)
}
