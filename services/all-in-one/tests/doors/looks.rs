//! What a board shows, through each door: what can be claimed, the scheduling record, the runs, and an iterator.

use std::{collections::BTreeSet, time::Duration};

use dueline_api::{
    Call, Callable as _, TaskIter,
    operation::{ClaimTask, GetRuns, GetScheduling, PauseJob, SchedulingStatus, Submit, WaitAny},
};
use dueline_domain::{ClaimLifetime, Due, JobName, NewTask, RunEnd, TaskId, TaskOptions, WorkerId};
use dueline_ports::ListQuery;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::node::{TestNode, mail, new_task};

async fn submit(node: &TestNode, tasks: Vec<NewTask>) -> Vec<TaskId> {
    let (frontend, call) = (node.frontend(), Call::default());
    let answers = frontend.call(&call, Submit { tasks }).await.unwrap();
    answers
        .into_iter()
        .map(|answer| answer.unwrap().id)
        .collect()
}

async fn submit_now(node: &TestNode) -> TaskId {
    submit(node, vec![new_task(Due::Now, TaskOptions::default())]).await[0]
}

/// Claims a task over REST; returns its token.
async fn claim(node: &TestNode, id: TaskId) -> String {
    let path = format!("jobs/mail/tasks/{id}/claim");
    let body = json!({"owner": "ann", "lifetime_ms": 60_000});
    let claimed = node.send(Method::POST, &path, Some(&body)).await;
    claimed["token"]
        .as_str()
        .unwrap_or_else(|| panic!("{claimed}"))
        .to_owned()
}

async fn report(node: &TestNode, id: TaskId, token: &str, verb: &str, mut with: Value) -> Value {
    with["token"] = token.into();
    let path = format!("work/mail/{id}/{verb}");
    let answer = node.send(Method::POST, &path, Some(&with)).await;
    assert!(
        answer["state"].is_string() && answer["kind"].is_null(),
        "{answer}"
    );
    answer
}

fn wait(ms: u64) -> WaitAny {
    WaitAny {
        jobs: vec![mail()],
        wait: Duration::from_millis(ms),
        limit: 10,
    }
}

/// The ids that each door answers, and that they are the same.
async fn claimable(node: &TestNode, ms: u64) -> Vec<TaskId> {
    let call = Call::default();
    let embedded = node.frontend().call(&call, wait(ms)).await.unwrap();
    let grpc = node.grpc().call(&call, wait(ms)).await.unwrap();
    assert_eq!(grpc, embedded);
    let path = format!("claimable?job=mail&wait={ms}ms&limit=10");
    let rest = node.send(Method::GET, &path, None).await;
    let rest = rest["tasks"].as_array().unwrap();
    let rest: Vec<_> = rest
        .iter()
        .map(|task| task["id"].as_str().unwrap().to_owned())
        .collect();
    let ids: Vec<_> = embedded.iter().map(|task| task.id).collect();
    assert_eq!(
        rest,
        ids.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn f_044_a_35_a_wait_for_any_task_ends_with_one_that_the_caller_could_claim() {
    let node = TestNode::start().await;
    let call = Call::default();
    // The task of the node is not due. The wait ends in time, also when it is shorter than the steps in between.
    let since = Instant::now();
    assert!(
        node.frontend()
            .call(&call, wait(100))
            .await
            .unwrap()
            .is_empty()
    );
    let waited = since.elapsed();
    let bounds = Duration::from_millis(100)..Duration::from_millis(150);
    assert!(bounds.contains(&waited), "{waited:?}");
    assert!(claimable(&node, 0).await.is_empty());

    // Tasks that are claimed do not count, nor those of a paused job.
    let claimed = submit_now(&node).await;
    claim(&node, claimed).await;
    assert!(claimable(&node, 0).await.is_empty());
    let open = submit_now(&node).await;
    let pause = |paused| PauseJob {
        name: mail(),
        paused,
    };
    node.frontend().call(&call, pause(true)).await.unwrap();
    assert!(claimable(&node, 0).await.is_empty());
    node.frontend().call(&call, pause(false)).await.unwrap();
    assert_eq!(claimable(&node, 0).await, [open]);
    claim(&node, open).await;

    // One that is submitted meanwhile ends the wait, however it arrives.
    let submit = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let path = "jobs/mail/tasks";
        let task = node.send(Method::POST, path, Some(&json!({}))).await;
        (task, Instant::now())
    };
    let grpc = node.grpc();
    let (found, (submitted, since)) = tokio::join!(grpc.call(&call, wait(20_000)), submit);
    assert_eq!(submitted["id"], found.unwrap()[0].id.to_string());
    assert!(
        since.elapsed() < Duration::from_secs(3),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f_016_the_scheduling_record_matches_the_state_at_every_step() {
    let node = TestNode::start().await;
    let call = Call::default();
    let policy = json!({"backoff": {"standard": {"initial_ms": 600_000, "jitter": 0}}});
    let put = node.send(Method::PUT, "jobs/mail", Some(&policy)).await;
    assert_eq!(put["name"], "mail", "{put}");
    let id = submit_now(&node).await;
    let expect = async |status: SchedulingStatus, is_next: bool| {
        let operation = GetScheduling { job: mail(), id };
        let embedded = node
            .frontend()
            .call(&call, operation.clone())
            .await
            .unwrap();
        let grpc = node.grpc().call(&call, operation).await.unwrap();
        let path = format!("jobs/mail/tasks/{id}");
        let rest = node
            .send(Method::GET, &format!("{path}/scheduling"), None)
            .await;
        let task = node.send(Method::GET, &path, None).await;
        assert_eq!(embedded, grpc);
        assert_eq!(
            (&embedded.job, embedded.status),
            (&mail(), status),
            "{task}"
        );
        assert_eq!(rest["status"], status.name());
        assert_eq!(
            (&rest["job"], &rest["next_execution"]),
            (&json!("mail"), &task["trigger_at"])
        );
        assert_eq!(embedded.next_execution.is_some(), is_next, "{task}");
    };
    use SchedulingStatus::{Completed, New, Started};
    expect(New, true).await;
    let token = claim(&node, id).await;
    expect(New, true).await;
    report(&node, id, &token, "start", json!({})).await;
    expect(Started, true).await;
    report(&node, id, &token, "fail", json!({"error": "no luck"})).await;
    expect(Started, true).await;
    // A user makes it due again.
    let soon = json!({"delay_ms": 0});
    let path = format!("jobs/mail/tasks/{id}");
    node.send(Method::PATCH, &path, Some(&soon)).await;
    // Its record moves once more when the consumer enqueues it.
    while node.send(Method::GET, &path, None).await["state"] != "enqueued" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    expect(Started, true).await;
    let forever = ClaimTask {
        job: mail(),
        id,
        owner: WorkerId::parse("ann").unwrap(),
        lifetime: ClaimLifetime::Never,
        request: None,
    };
    let claimed = node.frontend().call(&call, forever).await.unwrap();
    let token = claimed.assignment.token.to_string();
    expect(Started, false).await;
    report(&node, id, &token, "start", json!({})).await;
    report(&node, id, &token, "complete", json!({})).await;
    expect(Completed, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_043_each_run_that_is_over_is_shown_with_its_end_through_each_door() {
    let node = TestNode::start().await;
    let call = Call::default();
    let other = submit_now(&node).await;
    let id = submit_now(&node).await;
    for end in ["first", "second", "done"] {
        let token = claim(&node, id).await;
        report(&node, id, &token, "start", json!({})).await;
        match end {
            "done" => report(&node, id, &token, "complete", json!({"result": "fine"})).await,
            error => report(&node, id, &token, "fail", json!({"error": error})).await,
        };
        let path = format!("jobs/mail/tasks/{id}");
        node.send(Method::PATCH, &path, Some(&json!({"delay_ms": 0})))
            .await;
    }
    let operation = GetRuns { job: mail(), id };
    let embedded = node
        .frontend()
        .call(&call, operation.clone())
        .await
        .unwrap();
    assert_eq!(node.grpc().call(&call, operation).await.unwrap(), embedded);
    let shown: Vec<_> = embedded
        .runs
        .iter()
        .map(|run| (run.attempt, run.end, &*run.info))
        .collect();
    let (failed, succeeded) = (RunEnd::Retriable, RunEnd::Succeeded);
    assert_eq!(
        shown,
        [
            (0, failed, "first"),
            (1, failed, "second"),
            (2, succeeded, "\"fine\"")
        ]
    );
    for run in &embedded.runs {
        assert!(run.started_at <= run.finished_at);
        assert_eq!(run.worker.as_ref().map(WorkerId::as_str), Some("ann"));
    }
    let rest = node
        .send(Method::GET, &format!("jobs/mail/tasks/{id}/runs"), None)
        .await;
    let ends = rest["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["end"]);
    assert_eq!(
        ends.collect::<Vec<_>>(),
        ["retriable", "retriable", "succeeded"]
    );
    let untouched = GetRuns {
        job: mail(),
        id: other,
    };
    assert!(
        node.grpc()
            .call(&call, untouched)
            .await
            .unwrap()
            .runs
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f_084_an_iterator_carries_its_settings_and_returns_each_task_once() {
    let node = TestNode::start().await;
    let many = |count| -> Vec<_> {
        let tasks = (0..count).map(|_| new_task(Due::Now, TaskOptions::default()));
        tasks.collect()
    };
    let mut expected: BTreeSet<_> = submit(&node, many(20)).await.into_iter().collect();
    let query = ListQuery {
        limit: 3,
        ..TaskIter::unclaimed(node.frontend(), mail()).query().clone()
    };
    let mut tasks = TaskIter::of(node.frontend(), query.clone());
    assert_eq!(tasks.job(), &mail());
    assert!(tasks.only_unclaimed() && tasks.is_fresh());
    assert!(!TaskIter::new(node.frontend(), mail()).only_unclaimed());
    let mut seen = Vec::new();
    while let Some(task) = tasks.next().await.unwrap() {
        seen.push(task.id);
        // Others come and go meanwhile. A task that is claimed before its page is read is not unclaimed any more.
        if seen.len() % 5 == 1 && seen.len() < 20 {
            submit(&node, many(1)).await;
            let gone = expected
                .iter()
                .find(|id| !seen.contains(id))
                .copied()
                .unwrap();
            claim(&node, gone).await;
            expected.remove(&gone);
        }
    }
    let once: BTreeSet<_> = seen.iter().copied().collect();
    assert_eq!(once.len(), seen.len(), "{seen:?}");
    let missed: Vec<_> = expected.difference(&once).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert!(
        tasks.next().await.unwrap().is_none(),
        "the end stays the end"
    );

    // An iterator goes on where another has stopped, through another door.
    let mut first = TaskIter::of(node.frontend(), query);
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(first.next().await.unwrap().unwrap().id);
    }
    let grpc = std::sync::Arc::new(node.grpc());
    let mut second = TaskIter::of(grpc, first.query().clone());
    while let Some(task) = second.next().await.unwrap() {
        all.push(task.id);
    }
    let once: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!(once.len(), all.len());

    let unknown = JobName::parse("nope").unwrap();
    let error = TaskIter::new(node.frontend(), unknown)
        .next()
        .await
        .unwrap_err();
    assert_eq!(error.reason().to_string(), "unknown_job");
}
