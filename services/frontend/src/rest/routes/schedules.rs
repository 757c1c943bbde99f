//! `/v1/jobs/{job}/schedules`

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    ErrorReason,
    operation::{
        BackfillSchedule, DeleteSchedule, GetSchedule, ListSchedules, PauseSchedule, PutSchedule,
        ShownSchedule, TriggerSchedule,
    },
    v1::{PauseRequest, Problem, RangeView, ScheduleList, ScheduleSpec, ScheduleView},
};
use http::{StatusCode, Uri};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{
    App, Failure,
    body::Body,
    query::Query,
    reply::{empty, json},
    target::{Context, OfJob, OfSchedule},
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(put, get, delete))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(trigger))
        .routes(routes!(backfill))
}

fn show(schedule: ShownSchedule) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &ScheduleView::try_from(schedule)?)?)
}

/// Create or update a schedule
///
/// What the body leaves out has its default. The next firing moves only if the rule changes.
#[utoipa::path(
    put, path = "/v1/jobs/{job}/schedules/{schedule}", tag = "schedules", operation_id = "put_schedule",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("schedule" = String, Path, description = "Name of the schedule"),
    ),
    request_body = ScheduleSpec,
    responses(
        (status = 200, description = "Created or updated", body = ScheduleView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn put(
    State(app): State<Arc<App>>,
    OfSchedule(job, name): OfSchedule,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let spec: ScheduleSpec = body.object(ErrorReason::NoSchedule)?;
    let spec = spec.into_spec(&job)?;
    show(
        app.call(&body.call, PutSchedule { job, name, spec })
            .await?,
    )
}

/// Show a schedule, with its next firings
#[utoipa::path(
    get, path = "/v1/jobs/{job}/schedules/{schedule}", tag = "schedules", operation_id = "get_schedule",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("schedule" = String, Path, description = "Name of the schedule"),
        ("next" = Option<u32>, Query, description = "How many of the next firings to show, at most 100; 5 when absent"),
    ),
    responses(
        (status = 200, description = "The schedule", body = ScheduleView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn get(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfSchedule(job, name): OfSchedule,
    uri: Uri,
) -> Result<Response, Failure> {
    let next = Query::of(&uri, &["next"])?.next_firings();
    show(app.call(&call, GetSchedule { job, name, next }).await?)
}

/// Delete a schedule. Its tasks stay
#[utoipa::path(
    delete, path = "/v1/jobs/{job}/schedules/{schedule}", tag = "schedules", operation_id = "delete_schedule",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("schedule" = String, Path, description = "Name of the schedule"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn delete(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfSchedule(job, name): OfSchedule,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    app.call(&call, DeleteSchedule { job, name }).await?;
    Ok(empty())
}

/// List the schedules of a job, by name
#[utoipa::path(
    get, path = "/v1/jobs/{job}/schedules", tag = "schedules", operation_id = "list_schedules",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("after" = Option<String>, Query, description = "Those after this name"),
        ("limit" = Option<u32>, Query, description = "Most schedules on the page, 1 to 1000; 100 when absent"),
    ),
    responses(
        (status = 200, description = "The schedules", body = ScheduleList),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn list(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(job): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::of(&uri, &["after", "limit"])?;
    let list = ListSchedules {
        job,
        after: query.schedule("after")?,
        limit: query.limit(),
    };
    let page = app.call(&call, list).await?;
    Ok(json(StatusCode::OK, &ScheduleList::try_from(page)?)?)
}

/// Pause a schedule: its rule fires no more
///
/// Firings that are due while it is paused are skipped.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/schedules/{schedule}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("schedule" = String, Path, description = "Name of the schedule"),
    ),
    request_body = Option<PauseRequest>,
    responses(
        (status = 200, description = "The schedule", body = ScheduleView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn pause(
    State(app): State<Arc<App>>,
    OfSchedule(job, name): OfSchedule,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let PauseRequest { reason } = body.optional()?;
    let pause = PauseSchedule {
        job,
        name,
        paused: true,
        reason: reason.map(Arc::from),
    };
    show(app.call(&body.call, pause).await?)
}

/// Resume a schedule
#[utoipa::path(
    post, path = "/v1/jobs/{job}/schedules/{schedule}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("schedule" = String, Path, description = "Name of the schedule"),
    ),
    responses(
        (status = 200, description = "The schedule", body = ScheduleView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn resume(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfSchedule(job, name): OfSchedule,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    let resume = PauseSchedule {
        job,
        name,
        paused: false,
        reason: None,
    };
    show(app.call(&call, resume).await?)
}

/// Fire a schedule now, whatever its rule says
///
/// The overlap policy applies. A consumer creates the task, within its poll period.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/schedules/{schedule}/trigger", tag = "schedules", operation_id = "trigger_schedule",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("schedule" = String, Path, description = "Name of the schedule"),
    ),
    responses(
        (status = 200, description = "The schedule", body = ScheduleView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn trigger(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfSchedule(job, name): OfSchedule,
    uri: Uri,
) -> Result<Response, Failure> {
    Query::of(&uri, &[])?;
    show(app.call(&call, TriggerSchedule { job, name }).await?)
}

/// Carry out all firings of a range of time
///
/// The overlap policy does not apply. A firing whose task exists creates no second one. At most 10000 firings.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/schedules/{schedule}/backfill", tag = "schedules", operation_id = "backfill_schedule",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("schedule" = String, Path, description = "Name of the schedule"),
    ),
    request_body = RangeView,
    responses(
        (status = 200, description = "The schedule", body = ScheduleView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn backfill(
    State(app): State<Arc<App>>,
    OfSchedule(job, name): OfSchedule,
    request: Request,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(&app, request).await?;
    let RangeView { from, to } = body.object(ErrorReason::NoRange)?;
    let backfill = BackfillSchedule {
        job,
        name,
        from: from.into(),
        to: to.into(),
    };
    show(app.call(&body.call, backfill).await?)
}
