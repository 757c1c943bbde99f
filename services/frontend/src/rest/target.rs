//! What the path of a call names.

use axum::{
    RequestPartsExt as _,
    extract::{FromRequestParts, RawPathParams},
};
use dueline_api::{ApiError, Call, ErrorKind, ErrorReason};
use dueline_domain::{IdError, JobName, ScheduleName, TaskId, WorkerId};
use http::request::Parts;

use super::{Failure, body::context};

/// The context that the edge has put into a request.
pub(super) struct Context(pub(super) Call);

impl<S: Send + Sync> FromRequestParts<S> for Context {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self(context(&parts.extensions)))
    }
}

/// The job of `/v1/jobs/{job}`.
pub(super) struct OfJob(pub(super) JobName);

/// The task of `/v1/jobs/{job}/tasks/{id}`.
pub(super) struct OfTask(pub(super) JobName, pub(super) TaskId);

/// The schedule of `/v1/jobs/{job}/schedules/{schedule}`.
pub(super) struct OfSchedule(pub(super) JobName, pub(super) ScheduleName);

/// The worker of `/v1/workers/{id}`.
pub(super) struct OfWorker(pub(super) WorkerId);

impl<S: Send + Sync> FromRequestParts<S> for OfJob {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let params = params(parts).await?;
        Ok(Self(job(&params)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfTask {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let params = params(parts).await?;
        let id = TaskId::parse(named(&params, "id"))
            .map_err(|error| ApiError::invalid("id", ErrorReason::InvalidId, error))?;
        Ok(Self(job(&params)?, id))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfSchedule {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let params = params(parts).await?;
        let name = ScheduleName::parse(named(&params, "schedule"))
            .map_err(|error| ApiError::invalid("name", ErrorReason::InvalidName, error))?;
        Ok(Self(job(&params)?, name))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfWorker {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let params = params(parts).await?;
        let id = WorkerId::parse(named(&params, "id"))
            .map_err(|error| ApiError::invalid("id", ErrorReason::InvalidId, error))?;
        Ok(Self(id))
    }
}

async fn params(parts: &mut Parts) -> Result<RawPathParams, Failure> {
    parts
        .extract()
        .await
        .map_err(|_| Failure::invalid(ErrorReason::InvalidPath, "the path is not UTF-8"))
}

fn named<'a>(params: &'a RawPathParams, name: &str) -> &'a str {
    params
        .iter()
        .find_map(|(key, value)| (key == name).then_some(value))
        .unwrap_or_default()
}

fn job(params: &RawPathParams) -> Result<JobName, ApiError> {
    JobName::parse(named(params, "job")).map_err(|error| match error {
        IdError::Empty { .. } => no_job(),
        error => ApiError::invalid("job", ErrorReason::InvalidName, error),
    })
}

/// The error of a path that names no job where it should.
pub(super) fn no_job() -> ApiError {
    ApiError::new(
        ErrorKind::Invalid,
        ErrorReason::NoJob,
        "job: no job is named",
    )
    .with_field("job")
}
