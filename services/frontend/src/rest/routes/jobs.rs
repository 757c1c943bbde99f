//! `/v1/jobs`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ApiError, ErrorKind,
    v1::{JobList, JobSpec, JobView, Problem, StatsView},
};
use http::{StatusCode, Uri};

use super::super::{
    App, Failure,
    call::Call,
    query::Query,
    reply::{empty, json},
    target::OfJob,
};

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
pub(super) async fn put(
    State(app): State<Arc<App>>,
    OfJob(name): OfJob,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let call = Call::read(&app, request).await?;
    let mut spec: JobSpec = call.object("no_job")?;
    let existing = match app.frontend()?.job(&name).await {
        Ok(job) => Some(job),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let was_paused = existing.as_ref().is_some_and(|job| job.paused);
    spec.paused = spec.paused.or(Some(was_paused));
    let job = spec.into_job(name, call.caller(), &app.default_policy)?;
    let job = app.frontend()?.put_job(job).await?;
    let status = if existing.is_some() {
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
        (status = 200, description = "The job", body = JobView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let job = app.frontend()?.job(&name).await?;
    Ok(json(StatusCode::OK, &JobView::try_from(&*job)?)?)
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
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    app.frontend()?.delete_job(&name).await?;
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
pub(super) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let jobs = app.frontend()?.jobs().await?;
    let jobs: Result<Vec<JobView>, ApiError> = jobs.iter().map(|job| (&**job).try_into()).collect();
    Ok(json(StatusCode::OK, &JobList { jobs: jobs? })?)
}

/// Pause a job: its tasks wait instead of being handed on
#[utoipa::path(
    post, path = "/v1/jobs/{job}/pause", tag = "jobs", operation_id = "pause_job",
    params(("job" = String, Path, description = "Name of the job")),
    responses(
        (status = 200, description = "The job", body = JobView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let job = app.frontend()?.pause_job(&name, true).await?;
    Ok(json(StatusCode::OK, &JobView::try_from(&*job)?)?)
}

/// Resume a job
#[utoipa::path(
    post, path = "/v1/jobs/{job}/resume", tag = "jobs", operation_id = "resume_job",
    params(("job" = String, Path, description = "Name of the job")),
    responses(
        (status = 200, description = "The job", body = JobView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let job = app.frontend()?.pause_job(&name, false).await?;
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
pub(super) async fn stats(
    State(app): State<Arc<App>>,
    OfJob(name): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let stats = app.frontend()?.job_stats(&name).await?;
    Ok(json(StatusCode::OK, &StatsView::new(name, &stats))?)
}
