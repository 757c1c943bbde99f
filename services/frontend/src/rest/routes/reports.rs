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
use dueline_domain::{JobName, TaskId, Token, WriteId};
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::super::{App, Failure, call::Call, query::Query, reply::json, target::OfTask};

/// The name that a report is stored under: made of the name that its sender chose, what it says and the claim it is
/// about. A store takes a report with the name of the task's latest write for that very write; a sender that uses a
/// name twice must not have its second report taken for the first.
fn write_of(named: WriteId, verb: &str, token: Token) -> WriteId {
    let verb = verb
        .bytes()
        .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    WriteId::from_random(mix(named.get() ^ mix(token.get() ^ verb)))
}

/// Spreads a change of any bit over all of them; no two numbers have the same answer.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Reads a body, makes a report of it, and answers what came of it.
async fn report<T: DeserializeOwned>(
    app: &App,
    OfTask(job, id): OfTask,
    request: Request,
    verb: &'static str,
    report: impl FnOnce(T, JobName, TaskId, WriteId) -> Result<Report, ApiError>,
) -> Result<Response, Failure> {
    let work = app.work()?;
    Query::of(request.uri(), &[])?;
    let call = Call::read(app, request).await?;
    let body: T = call.object("no_body")?;
    let mut report = report(body, job, id, app.rng.write_id())?;
    report.write = write_of(report.write, verb, report.token);
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
    report(
        &app,
        task,
        request,
        "start",
        |body: Owned, job, id, write| Ok(body.into_report(job, id, Action::Start, || write)),
    )
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
    report(
        &app,
        task,
        request,
        "heartbeat",
        |body: Owned, job, id, write| Ok(body.into_report(job, id, Action::Heartbeat, || write)),
    )
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
    report(
        &app,
        task,
        request,
        "checkpoint",
        |body: Checkpoint, job, id, write| body.into_report(job, id, || write),
    )
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
    report(
        &app,
        task,
        request,
        "complete",
        |body: Complete, job, id, write| body.into_report(job, id, || write),
    )
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
    report(&app, task, request, "fail", |body: Fail, job, id, write| {
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
    report(
        &app,
        task,
        request,
        "abandon",
        |body: Owned, job, id, write| Ok(body.into_report(job, id, Action::Abandon, || write)),
    )
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
    report(
        &app,
        task,
        request,
        "trash",
        |body: Trash, job, id, write| body.into_report(job, id, || write),
    )
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
    report(
        &app,
        task,
        request,
        "extend",
        |body: Extend, job, id, write| body.into_report(job, id, || write),
    )
    .await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_stands_for_one_verb_on_one_claim() {
        let stored = |named, verb, token| {
            let (named, token) = (WriteId::from_random(named), Token::from_random(token));
            write_of(named, verb, token)
        };
        let mut seen = BTreeSet::new();
        for verb in ["start", "heartbeat", "complete", "fail", "trash"] {
            for (named, token) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
                assert_eq!(stored(named, verb, token), stored(named, verb, token));
                assert!(seen.insert(stored(named, verb, token)), "{verb}");
            }
        }
        // A repetition may reach a process of another version.
        assert_eq!(stored(1, "start", 1).to_string(), "4e8d56b955071092");
    }
}
