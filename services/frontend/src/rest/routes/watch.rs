//! `/v1/jobs/{job}/changes` and `/v1/jobs/{job}/watch`: what has changed, as an answer and as a stream.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use dueline_api::{
    ApiError, ErrorReason, Frontend, Watch, check,
    operation::{ReadChanges, WatchPage},
    v1::{ChangeView, ChangesView, Problem},
};
use dueline_domain::{JobName, TaskId};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde::Serialize;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::super::{
    App, Failure,
    query::Query,
    reply::json,
    target::{Context, OfJob},
};

/// The header by which a client of server-sent events says where it was.
const LAST_EVENT: &str = "last-event-id";

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(changes))
        .routes(routes!(watch))
}

/// Read changes
///
/// The changes of the tasks of a job since `cursor`; the answer comes with the first of them, or without any when the wait is
/// over. Without `cursor` the answer comes at once: for a job it holds the present position, for one task its present state.
#[utoipa::path(
    get, path = "/v1/jobs/{job}/changes", tag = "tasks", operation_id = "read_changes",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("task" = Option<String>, Query, description = "Id of one task"),
        ("cursor" = Option<String>, Query, description = "`next` or `cursor` of an earlier answer"),
        ("wait" = Option<String>, Query, description = "How long to wait, as in `30s`; at most an hour, not at all when absent"),
        ("limit" = Option<u32>, Query, description = "Most changes: 1 to 1000, 100 when absent"),
    ),
    responses(
        (status = 200, description = "The changes, or none when the wait was over", body = ChangesView),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn changes(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(job): OfJob,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::of(&uri, &["task", "cursor", "wait", "limit"])?;
    let operation = ReadChanges {
        job,
        id: query.task("task")?,
        cursor: query.cursor(),
        wait: query.wait()?.unwrap_or_default(),
        limit: query.limit(),
    };
    let page = app.call(&call, operation).await?;
    Ok(json(StatusCode::OK, &ChangesView::from(page))?)
}

/// Watch the tasks of a job, or one task
///
/// Server-sent events until the client goes, or until the one task has ended. First an event `position`, or `gap` when changes
/// since the cursor were missed; then one event for each change, whose name is its kind and whose data is a change. The id of an
/// event is the cursor behind it; `Last-Event-ID` goes on there. A reader that is too slow gets an event `error` with the
/// problem `too_slow`, and the stream ends.
#[utoipa::path(
    get, path = "/v1/jobs/{job}/watch", tag = "tasks", operation_id = "watch_tasks",
    params(
        ("job" = String, Path, description = "Name of the job"),
        ("task" = Option<String>, Query, description = "Id of one task"),
        ("cursor" = Option<String>, Query, description = "Where to go on"),
        ("Last-Event-ID" = Option<String>, Header, description = "The same; counts more than `cursor`"),
    ),
    responses(
        (status = 200, description = "Events", body = ChangeView, content_type = "text/event-stream"),
        (status = "default", description = "Failed", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn watch(
    State(app): State<Arc<App>>,
    Context(call): Context,
    OfJob(job): OfJob,
    request: Request,
) -> Result<Response, Failure> {
    let query = Query::of(request.uri(), &["task", "cursor"])?;
    let id = query.task("task")?;
    let cursor = last_event(request.headers())?.or_else(|| query.cursor());
    let operation = operation(job, id, cursor);
    let mut watch = Watch::for_stream(app.frontend()?, call, operation)?;
    // What is wrong with the request is answered as a problem, and not within a stream.
    let Some(first) = watch.next_page().await? else {
        return Ok(events(Body::empty()));
    };
    let first = text_of_first(first);
    let pages = stream::unfold((Some(first), Some(watch)), async |(first, watch)| {
        if let Some(text) = first {
            return Some((Ok::<_, Infallible>(text), (None, watch)));
        }
        let mut watch: Watch<dyn Frontend> = watch?;
        match watch.next_page().await {
            Ok(Some(page)) => Some((Ok(text_of(page)), (None, Some(watch)))),
            Ok(None) => None,
            Err(error) => {
                let cursor = watch.cursor().unwrap_or_default();
                let text = event("error", cursor, &Problem::from(&error));
                Some((Ok(text.into()), (None, None)))
            }
        }
    });
    Ok(events(Body::from_stream(pages)))
}

fn operation(job: JobName, id: Option<TaskId>, cursor: Option<Arc<str>>) -> ReadChanges {
    ReadChanges {
        job,
        id,
        cursor,
        wait: Duration::ZERO,
        limit: check::PAGE_LEN_DEFAULT,
    }
}

fn last_event(headers: &HeaderMap) -> Result<Option<Arc<str>>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT) else {
        return Ok(None);
    };
    let text = value.to_str().map(Arc::from).map_err(|_| {
        let message = "is none that this watch gave out";
        ApiError::invalid("Last-Event-ID", ErrorReason::InvalidCursor, message)
    });
    text.map(Some)
}

fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let of = HeaderValue::from_static;
    headers.insert(header::CONTENT_TYPE, of("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, of("no-store"));
    // A proxy that gathers an answer would hold events back.
    headers.insert("x-accel-buffering", of("no"));
    response
}

/// A position without a change.
#[derive(Serialize)]
struct Position<'a> {
    next: &'a str,
}

fn text_of_first(page: WatchPage) -> Bytes {
    let name = if page.gap { "gap" } else { "position" };
    let mut text = String::new();
    if page.gap || page.changes.is_empty() {
        text = event(name, &page.next, &Position { next: &page.next });
    }
    text.push_str(&changes_of(page));
    text.into()
}

fn text_of(page: WatchPage) -> Bytes {
    match page.changes.is_empty() {
        // A comment, by which both sides notice a connection that is dead.
        true => Bytes::from_static(b": still watching\n\n"),
        false => changes_of(page).into(),
    }
}

fn changes_of(page: WatchPage) -> String {
    let events = page.changes.into_iter().map(ChangeView::from);
    events
        .map(|change| event(&change.kind, &change.cursor, &change))
        .collect()
}

/// One event. JSON has no line breaks, so its text is one line of data.
fn event(name: &str, cursor: &str, data: &impl Serialize) -> String {
    // A value of texts and numbers cannot fail to be written.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\nid: {cursor}\ndata: {data}\n\n")
}
