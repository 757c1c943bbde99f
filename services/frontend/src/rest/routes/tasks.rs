//! `/v1/jobs/{job}/tasks`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ApiError, ErrorKind, ErrorReason,
    operation::{GetJob, GetTask, ListTasks, Submit},
    v1::{Problem, SubmittedView, TaskPage, TaskSubmit, TaskView},
};
use http::{HeaderValue, StatusCode, Uri, header};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{
    App, Failure,
    body::Body,
    query::Query,
    reply::json,
    target::{Context, OfJob},
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(submit, list))
}

/// Submit a task
///
/// The answer means that it is stored durably. The same submit with the same `id` or `key` is one task, whose `delay_ms`
/// counts from the first time. With `wait` the answer is the whole task, when it has ended or the wait is over.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/tasks", tag = "tasks", operation_id = "submit_task",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("wait" = Option<String>, Query, description = "How long to wait for its end, as in `30s`; at most an hour"),
    ),
    request_body = TaskSubmit,
    responses(
        (status = 201, description = "Stored", body = SubmittedView),
        (status = 200, description = "An equal submit had stored it before", body = SubmittedView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn submit(
    State(app): State<Arc<App>>,
    OfJob(job): OfJob,
    request: Request,
) -> Result<Response, Failure> {
    let wait = Query::of(request.uri(), &["wait"])?.wait()?;
    let body = Body::read(&app, request).await?;
    let call = &body.call;
    let spec: TaskSubmit = body.object(ErrorReason::NoTask)?;
    let task = spec.into_task(job, || app.rng.task_id(app.clock.now()))?;
    let tasks = vec![task];
    let answer = app.call(call, Submit { tasks }).await?.pop();
    let submitted = answer.unwrap_or_else(|| {
        let message = "the store gave no answer";
        Err(ApiError::new(
            ErrorKind::Internal,
            ErrorReason::NoAnswer,
            message,
        ))
    })?;

    let status = if submitted.existed {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let location = format!("/v1/jobs/{}/tasks/{}", submitted.job, submitted.id);
    let mut response = if wait.is_some() {
        let (job, id) = (submitted.job.clone(), submitted.id);
        let task = app.call(call, GetTask { job, id, wait }).await?;
        let name = submitted.job;
        let job = app.call(call, GetJob::definition(name)).await?.job;
        json(status, &TaskView::new(&task, &job.policy)?)?
    } else {
        json(status, &SubmittedView::from(submitted))?
    };
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// List the tasks of a job
///
/// Newest first when no order is named. By due time only `new` and `retriable` tasks are listed, which wait for their time.
#[utoipa::path(
    get, path = "/v1/jobs/{job}/tasks", tag = "tasks", operation_id = "list_tasks",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("state" = Option<Vec<String>>, Query, description = "Only these states; repeated, or separated by commas"),
        ("status" = Option<Vec<String>>, Query, description = "Only these: pending, running, succeeded, failed, cancelled"),
        ("tag" = Option<String>, Query, description = "Only with this tag"),
        ("name" = Option<String>, Query, description = "Only with this name"),
        ("key" = Option<String>, Query, description = "Only with this idempotency key"),
        ("due_from" = Option<String>, Query, description = "Only first due at or after this time"),
        ("due_before" = Option<String>, Query, description = "Only first due before this time"),
        ("schedule" = Option<String>, Query, description = "Only created by this schedule"),
        ("order" = Option<String>, Query, description = "`posted` or `-posted`, `due` or `-due`; with a hyphen the latest first"),
        ("limit" = Option<u32>, Query, description = "Most tasks on a page: 1 to 1000, 100 when absent"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
    ),
    responses(
        (status = 200, description = "A page", body = TaskPage),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn list(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    const KNOWN: [&str; 11] = [
        "state",
        "status",
        "tag",
        "name",
        "key",
        "due_from",
        "due_before",
        "schedule",
        "order",
        "limit",
        "cursor",
    ];
    let query = Query::of(&uri, &KNOWN)?.list(name.clone())?;
    let job = app.call(&call, GetJob::definition(name)).await?.job;
    let page = match query {
        Some(query) => app.call(&call, ListTasks(query)).await?,
        None => Default::default(),
    };
    let tasks: Result<Vec<TaskView>, ApiError> = page
        .tasks
        .iter()
        .map(|task| TaskView::new(task, &job.policy))
        .collect();
    let page = TaskPage {
        tasks: tasks?,
        next: page.next.map(|next| next.to_string()),
    };
    Ok(json(StatusCode::OK, &page)?)
}
