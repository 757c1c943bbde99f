//! `/v1/jobs`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ApiError, ErrorKind, ErrorReason,
    operation::{DeleteJob, GetJob, GetJobStats, ListJobs, PauseJob, PutJob},
    v1::{JobList, JobSpec, JobView, Problem, ShownJobView, StatsView},
};
use http::{StatusCode, Uri};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{
    App, Failure,
    body::Body,
    query::Query,
    reply::{empty, json},
    target::{Context, OfJob},
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(put, get, delete))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(stats))
}

/// Create or update a job
///
/// What the body leaves out has the server's default, except for `paused`: an existing job stays as it is.
#[utoipa::path(
    put, path = "/v1/jobs/{job}", tag = "jobs", operation_id = "put_job",
    params(("job" = String, Path, description = "Name of the job")),
    request_body = JobSpec,
    responses(
        (status = 200, description = "Updated", body = JobView),
        (status = 201, description = "Created", body = JobView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn put(
    State(app): State<Arc<App>>,
    OfJob(name): OfJob,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let call = &body.call;
    let spec: JobSpec = body.object(ErrorReason::NoJob)?;
    let exists = match app.call(call, GetJob::definition(name.clone())).await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error.into()),
    };
    let put = PutJob {
        keeps_pause: spec.paused.is_none(),
        job: spec.into_job(name, &app.default_policy)?,
    };
    let job = app.call(call, put).await?;
    let status = if exists {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(json(status, &JobView::try_from(&*job)?)?)
}

/// Show a job
#[utoipa::path(
    get, path = "/v1/jobs/{job}", tag = "jobs", operation_id = "get_job",
    params(("job" = String, Path, description = "Name of the job")),
    responses(
        (status = 200, description = "The job", body = ShownJobView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn get(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let get = GetJob {
        name,
        frequency: true,
    };
    let shown = app.call(&call, get).await?;
    Ok(json(StatusCode::OK, &ShownJobView::try_from(&shown)?)?)
}

/// Delete a job and its finished tasks
///
/// Refused while it has unfinished tasks.
#[utoipa::path(
    delete, path = "/v1/jobs/{job}", tag = "jobs", operation_id = "delete_job",
    params(("job" = String, Path, description = "Name of the job")),
    responses(
        (status = 204, description = "Deleted"),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn delete(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    app.call(&call, DeleteJob { name }).await?;
    Ok(empty())
}

/// List all jobs, by name
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs",
    responses(
        (status = 200, description = "The jobs", body = JobList),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn list(
    State(app): State<Arc<App>>,
    Context(call): Context,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let jobs = app.call(&call, ListJobs).await?;
    let jobs: Result<Vec<JobView>, ApiError> = jobs.iter().map(|job| (&**job).try_into()).collect();
    Ok(json(StatusCode::OK, &JobList { jobs: jobs? })?)
}

/// Pause a job: its due tasks wait instead of being enqueued
#[utoipa::path(
    post, path = "/v1/jobs/{job}/pause", tag = "jobs", operation_id = "pause_job",
    params(("job" = String, Path, description = "Name of the job")),
    responses(
        (status = 200, description = "The job", body = ShownJobView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn pause(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let pause = PauseJob { name, paused: true };
    let job = app.call(&call, pause).await?;
    Ok(json(StatusCode::OK, &JobView::try_from(&*job)?)?)
}

/// Resume a job
#[utoipa::path(
    post, path = "/v1/jobs/{job}/resume", tag = "jobs", operation_id = "resume_job",
    params(("job" = String, Path, description = "Name of the job")),
    responses(
        (status = 200, description = "The job", body = ShownJobView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn resume(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let resume = PauseJob {
        name,
        paused: false,
    };
    let job = app.call(&call, resume).await?;
    Ok(json(StatusCode::OK, &JobView::try_from(&*job)?)?)
}

/// Count the tasks of a job
#[utoipa::path(
    get, path = "/v1/jobs/{job}/stats", tag = "jobs", operation_id = "get_job_stats",
    params(("job" = String, Path, description = "Name of the job")),
    responses(
        (status = 200, description = "The numbers", body = StatsView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn stats(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let get = GetJobStats { name: name.clone() };
    let stats = app.call(&call, get).await?;
    Ok(json(StatusCode::OK, &StatsView::new(name, &stats))?)
}
