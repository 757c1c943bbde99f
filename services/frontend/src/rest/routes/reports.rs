//! `/v1/work/{job}/{id}/…`: what owners say about their tasks.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use dueline_api::{
    Action, ApiError, ErrorKind, ErrorReason, Report, check,
    operation::ReportTask,
    v1::{Checkpoint, Complete, Extend, Fail, Owned, Problem, ReportedView, Trash},
};
use dueline_domain::{Token, WriteId};
use http::StatusCode;
use serde::de::DeserializeOwned;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{App, Failure, body::Body, query::Query, reply::json, target::OfTask};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(start))
        .routes(routes!(heartbeat))
        .routes(routes!(checkpoint))
        .routes(routes!(complete))
        .routes(routes!(fail))
        .routes(routes!(abandon))
        .routes(routes!(trash))
        .routes(routes!(extend))
}

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

/// What a body says.
struct Said {
    /// The proof of ownership.
    token: Token,
    /// The name that the sender chose.
    named: Option<WriteId>,
    /// Who the sender takes for the owner.
    owner: Option<String>,
    /// What is reported.
    action: Action,
}

/// Reads a body, makes a report of it, and answers what came of it. With a named owner
/// the frontend answers, which knows who owns the task.
async fn report<T: DeserializeOwned>(
    app: &App,
    OfTask(job, id): OfTask,
    request: Request,
    verb: &str,
    read: impl FnOnce(T) -> Result<Said, ApiError>,
) -> Result<Response, Failure> {
    Query::of(request.uri(), &[])?;
    let body = Body::read(app, request).await?;
    let Said {
        token,
        named,
        owner,
        action,
    } = read(body.object(ErrorReason::MissingBody)?)?;
    let named = named.unwrap_or_else(|| app.rng.write_id());
    let report = Report {
        job,
        id,
        token,
        write: write_of(named, verb, token),
        action,
        trace: body.call.trace.clone(),
    };
    if owner.is_some() {
        let owner = owner.as_deref().map(check::owner).transpose()?;
        let reported = app.call(&body.call, ReportTask { owner, report }).await?;
        return Ok(json(StatusCode::OK, &ReportedView::from(reported))?);
    }
    let answer = app.work()?.report(vec![report]).await.pop();
    let reported = answer.unwrap_or_else(|| {
        let message = "the status controller gave no answer";
        Err(ApiError::new(
            ErrorKind::Internal,
            ErrorReason::NoAnswer,
            message,
        ))
    })?;
    Ok(json(StatusCode::OK, &ReportedView::from(reported))?)
}

/// Declares one route per verb: what is said of it, `verb: Body => action of the body`. All else is the same for all.
macro_rules! reports {
    ($($(#[$text:meta])* $verb:ident: $Body:ty => $action:expr;)*) => {$(
        $(#[$text])*
        #[utoipa::path(
            post,
            path = concat!("/v1/work/{job}/{id}/", stringify!($verb)),
            tag = "work",
            operation_id = concat!(stringify!($verb), "_task"),
            params(
                ("job" = String, Path, description = "Name of the job"),
                ("id" = String, Path, description = "Id of the task"),
            ),
            request_body = $Body,
            responses(
                (status = 200, description = "Stored durably", body = ReportedView),
                (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
            )
        )]
        async fn $verb(
            State(app): State<Arc<App>>,
            task: OfTask,
            request: Request,
        ) -> Result<Response, Failure> {
            let action: fn($Body) -> Result<Action, ApiError> = $action;
            let read = |mut body: $Body| {
                let (token, named, owner) = (body.token, body.write_id, body.owner.take());
                let action = action(body)?;
                Ok(Said { token, named, owner, action })
            };
            report(&app, task, request, stringify!($verb), read).await
        }
    )*};
}

reports! {
    /// Begin the run of a claimed task
    ///
    /// From here on a try is used.
    start: Owned => |_| Ok(Action::Start);

    /// Say that a run goes on
    ///
    /// The answer says whether a user has requested a cancel.
    heartbeat: Owned => |_| Ok(Action::Heartbeat);

    /// Store what a later run shall get instead of the payload
    ///
    /// Counts as a heartbeat.
    checkpoint: Checkpoint => Checkpoint::action;

    /// Say that a run succeeded
    complete: Complete => Complete::action;

    /// Say that a run did not succeed
    ///
    /// It is tried again while tries are left, unless it is `fatal`.
    fail: Fail => Fail::action;

    /// Give a task back
    ///
    /// No try is used.
    abandon: Owned => |_| Ok(Action::Abandon);

    /// Take a task off for good
    ///
    /// It is kept for review and can be redriven.
    trash: Trash => Trash::action;

    /// Set the end of the lease anew
    extend: Extend => Extend::action;
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
