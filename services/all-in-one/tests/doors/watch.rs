//! Watches through each door.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dueline_api::{
    Call, Callable, ErrorReason, Frontend, Watch,
    grpc::proto,
    operation::{Cancel, ReadChanges, Submit},
};
use dueline_domain::{ChangeKind, Due, RunningCancel, StateKind, TaskId, TaskOptions};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::node::{TestNode, mail, new_task};

const SOON: Duration = Duration::from_secs(20);

/// The changes that a reader got: kinds and tasks.
type Reported = Vec<(String, String)>;

/// Reads server-sent events.
struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    async fn open(node: &TestNode, path: &str, last_event: Option<&str>) -> Self {
        let response = node.events(path, last_event).await;
        assert_eq!(response.status().as_u16(), 200);
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert_eq!(kind, "text/event-stream");
        let text = String::new();
        Self { response, text }
    }

    /// Name, id and data of the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = event.lines();
                    let line = lines.find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().to_owned()
                };
                let (name, id, data) = (field("event: "), field("id: "), field("data: "));
                self.text = rest.to_owned();
                if !name.is_empty() {
                    return Some((name, id, serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let chunk = timeout(SOON, self.response.chunk()).await;
            let chunk = chunk.expect("an event within this time").unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

async fn post(node: &TestNode, count: usize) -> Vec<TaskId> {
    let tasks = (0..count).map(|_| new_task(Due::Now, TaskOptions::default()));
    let submit = Submit {
        tasks: tasks.collect(),
    };
    let answers = node.frontend().call(&Call::default(), submit).await;
    let answers = answers.unwrap().into_iter();
    answers.map(|answer| answer.unwrap().id).collect()
}

async fn cancel(node: &TestNode, id: TaskId) {
    let cancel = Cancel {
        job: mail(),
        id,
        running: RunningCancel::Refuse,
        reason: None,
        family: false,
    };
    let cancelled = node.frontend().call(&Call::default(), cancel).await;
    cancelled.unwrap();
}

/// Takes the tasks of a board, one after the other.
async fn consume(node: &TestNode, id: TaskId) {
    let path = format!("jobs/mail/tasks/{id}/claim");
    let claim = node
        .send(Method::POST, &path, Some(&json!({"owner": "ann"})))
        .await;
    let body = json!({"owner": "ann", "token": claim["token"]});
    let path = format!("work/mail/{id}/complete");
    let done = node.send(Method::POST, &path, Some(&body)).await;
    assert_eq!(done["done"], true, "{done}");
}

fn is_end(kind: &str) -> bool {
    matches!(kind, "posted" | "ended")
}

async fn reported_by_rest(mut events: Events, count: usize) -> Reported {
    let mut reported = Reported::new();
    while reported.len() < count {
        let (name, id, change) = events.next().await.expect("an endless stream");
        if is_end(&name) {
            assert_eq!(change["cursor"], id.as_str());
            reported.push((name, change["id"].as_str().unwrap().to_owned()));
        }
    }
    reported
}

async fn reported_by_grpc(
    mut changes: tonic::Streaming<proto::ReadChangesResponse>,
    count: usize,
) -> Reported {
    let mut reported = Reported::new();
    while reported.len() < count {
        let page = timeout(SOON, changes.message()).await.unwrap().unwrap();
        for change in page.expect("an endless stream").changes {
            let kind = proto::ChangeKind::try_from(change.kind).unwrap();
            let name = kind.as_str_name().trim_start_matches("CHANGE_KIND_");
            let name = name.to_lowercase();
            if is_end(&name) {
                reported.push((name, change.id));
            }
        }
    }
    reported
}

async fn reported_embedded(mut watch: Watch<dyn Frontend>, count: usize) -> Reported {
    let mut reported = Reported::new();
    while reported.len() < count {
        let page = timeout(SOON, watch.next_page()).await.unwrap().unwrap();
        for change in page.expect("an endless watch").changes {
            let name = change.news.kind.name().to_owned();
            if is_end(&name) {
                reported.push((name, change.news.id.to_string()));
            }
        }
    }
    reported
}

/// Cannot call an embedded watch without a first page, which says that it watches.
async fn embedded(node: &TestNode) -> Watch<dyn Frontend> {
    let mut watch = Watch::job(node.frontend(), mail());
    let first = watch.next_page().await.unwrap().unwrap();
    assert!(first.changes.is_empty() && !first.gap);
    watch
}

fn request(cursor: &str, id: &str) -> proto::ReadChangesRequest {
    proto::ReadChangesRequest {
        job: "mail".into(),
        id: id.into(),
        cursor: cursor.into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_086_a_hundred_tasks_are_told_as_posted_and_ended_through_each_door() {
    let node = TestNode::start().await;
    let mut events = Events::open(&node, "jobs/mail/watch", None).await;
    let (name, start, _) = events.next().await.unwrap();
    assert_eq!(name, "position");
    let changes = node.grpc().raw().watch_tasks(request("", "")).await;
    let mut changes = changes.unwrap().into_inner();
    let first = changes.message().await.unwrap().unwrap();
    assert!(first.changes.is_empty() && !first.next.is_empty());
    let watch = embedded(&node).await;
    let mut readers = JoinSet::new();
    readers.spawn(reported_by_rest(events, 200));
    readers.spawn(reported_by_grpc(changes, 200));
    readers.spawn(reported_embedded(watch, 200));
    let ids = post(&node, 100).await;
    for id in &ids {
        consume(&node, *id).await;
    }
    let expected: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
    for reported in readers.join_all().await {
        for kind in ["posted", "ended"] {
            let of_kind = reported.iter().filter(|(name, _)| name == kind);
            let of_kind: BTreeSet<String> = of_kind.map(|(_, id)| id.clone()).collect();
            assert_eq!(of_kind, expected, "{kind}");
        }
    }
    // A reader that comes back with a position gets the rest, through each door.
    let again = Events::open(&node, "jobs/mail/watch", Some(&start)).await;
    assert_eq!(reported_by_rest(again, 200).await.len(), 200);
    let path = format!("jobs/mail/changes?cursor={start}&limit=1000");
    let page = node.send(Method::GET, &path, None).await;
    let all = page["changes"].as_array().unwrap();
    assert_eq!(page["gap"], false);
    // Each was claimed in between.
    assert_eq!(all.len(), 300, "{page}");
    let claimed = all.iter().find(|change| change["state"] == "claimed");
    assert_eq!(claimed.unwrap()["owner"], "ann");
    let middle = all[149]["cursor"].as_str().unwrap();
    let rest = node.grpc().raw().watch_tasks(request(middle, "")).await;
    let rest = reported_by_grpc(rest.unwrap().into_inner(), 75).await;
    assert!(rest.iter().all(|(name, _)| name == "ended"), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_086_one_task_is_watched_until_it_has_ended_through_each_door() {
    let node = TestNode::start().await;
    let id = post(&node, 1).await[0];
    let path = format!("jobs/mail/watch?task={id}");
    let mut events = Events::open(&node, &path, None).await;
    let (_, _, shown) = events.next().await.unwrap();
    assert_eq!(shown["state"], "enqueued");
    let mut raw = node.grpc().raw();
    let changes = raw.watch_tasks(request("", &id.to_string())).await;
    let mut changes = changes.unwrap().into_inner();
    let first = changes.message().await.unwrap().unwrap();
    assert_eq!(first.changes.len(), 1);
    let mut watch = Watch::task(node.frontend(), mail(), id);
    watch.next_page().await.unwrap();
    cancel(&node, id).await;
    let since = Instant::now();
    let (name, _, shown) = events.next().await.unwrap();
    assert_eq!((&*name, &shown["state"]), ("ended", &json!("cancelled")));
    assert!(
        events.next().await.is_none(),
        "the stream ends with the task"
    );
    let last = changes.message().await.unwrap().unwrap();
    let kind = last.changes[0].kind;
    assert_eq!(kind, i32::from(proto::ChangeKind::Ended));
    assert!(changes.message().await.unwrap().is_none());
    let last = watch.next_page().await.unwrap().unwrap();
    let shown = last.changes[0].news.shown.as_ref().unwrap();
    assert_eq!(shown.state, StateKind::Cancelled);
    assert!(watch.next_page().await.unwrap().is_none());
    assert!(since.elapsed() < Duration::from_secs(5));
    // A task that has ended is reported as ended at once.
    let mut late = Watch::task(node.frontend(), mail(), id);
    let page = late.next_page().await.unwrap().unwrap();
    assert_eq!(page.changes[0].news.kind, ChangeKind::Ended);
}

/// The 99th percentile of the times of submits, one after the other.
async fn submit_time(node: &TestNode) -> Duration {
    let mut times = Vec::new();
    for _ in 0..100 {
        let since = Instant::now();
        post(node, 1).await;
        times.push(since.elapsed());
    }
    times.sort_unstable();
    times[98]
}

#[tokio::test(flavor = "multi_thread")]
async fn f_086_a_callback_that_sleeps_or_panics_slows_no_submit_and_ends_no_board() {
    let node = TestNode::start().await;
    let before = submit_time(&node).await;
    let (mut sleeping, mut panicking) = (JoinSet::new(), JoinSet::new());
    let mut watch = embedded(&node).await;
    sleeping.spawn(async move {
        while watch.next_page().await.is_ok() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let mut watch = embedded(&node).await;
    panicking.spawn(async move {
        let page = watch.next_page().await.unwrap().unwrap();
        assert!(page.changes.is_empty(), "the callback of a test panics");
    });
    // A connection whose client does not read.
    let stalled = Events::open(&node, "jobs/mail/watch", None).await;
    let during = submit_time(&node).await;
    assert!(
        during < before * 10 + Duration::from_millis(100),
        "{during:?} with watches, {before:?} without"
    );
    assert!(panicking.join_next().await.unwrap().is_err());
    let (jobs, tasks) = node.stored().await;
    assert!(jobs == 1 && tasks >= 100, "the board is there");
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_086_a_reader_that_is_too_slow_is_dropped_with_the_reason() {
    let node = TestNode::start().await;
    let mut events = Events::open(&node, "jobs/mail/watch", None).await;
    let mut watch = embedded(&node).await;
    let behind = watch.cursor().unwrap().to_owned();
    // More than is kept, and more than fits into the buffers of a connection.
    for _ in 0..40 {
        post(&node, 1_000).await;
    }
    let mut last = None;
    while let Some((name, id, data)) = events.next().await {
        last = Some((name, id, data));
    }
    let (name, cursor, problem) = last.unwrap();
    assert_eq!((&*name, &problem["reason"]), ("error", &json!("too_slow")));
    let refused = watch.next_page().await.unwrap_err();
    assert_eq!(refused.reason(), &ErrorReason::TooSlow);
    // It may watch on behind the gap, and its old position is refused as too old.
    assert!(watch.next_page().await.is_ok());
    let mut again = Events::open(&node, "jobs/mail/watch", Some(&cursor)).await;
    assert_eq!(again.next().await.unwrap().0, "position");
    let mut late = Events::open(&node, "jobs/mail/watch", Some(&behind)).await;
    assert_eq!(late.next().await.unwrap().0, "gap");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_086_a_long_poll_ends_with_the_first_change() {
    let node = TestNode::start().await;
    let at = |cursor: Option<Arc<str>>, wait| ReadChanges {
        job: mail(),
        id: None,
        cursor,
        wait: Duration::from_secs(wait),
        limit: 10,
    };
    let call = Call::default();
    let grpc = node.grpc();
    let start = grpc.call(&call, at(None, 60)).await.unwrap();
    let since = Instant::now();
    let quiet = grpc.call(&call, at(Some(start.next.clone()), 1)).await;
    let quiet = quiet.unwrap();
    assert!(quiet.changes.is_empty() && since.elapsed() >= Duration::from_secs(1));
    let mut waiting = JoinSet::new();
    waiting.spawn({
        let (call, grpc) = (call.clone(), grpc.clone());
        async move { grpc.call(&call, at(Some(quiet.next), 60)).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let ids = post(&node, 1).await;
    let page = timeout(SOON, waiting.join_next()).await.unwrap();
    let page = page.unwrap().unwrap().unwrap();
    assert_eq!(page.changes[0].news.id, ids[0]);
}
