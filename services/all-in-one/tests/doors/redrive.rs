//! Redrives of tasks that others wait for, through each door.

use std::time::Duration;

use dueline_api::{Call, Callable as _, ErrorKind, operation::Redrive};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    families::{ended, id, path, run_next, show},
    node::{TestNode, mail},
};

fn id_of(number: u8) -> Value {
    json!({"id": id(number).to_string()})
}

async fn batch(node: &TestNode, tasks: Value) {
    let path = "jobs/mail/tasks:batch";
    let answer = node.send(Method::POST, path, Some(&tasks)).await;
    for result in answer["results"].as_array().unwrap() {
        assert!(result["error"].is_null(), "{result}");
    }
}

async fn states<const N: usize>(node: &TestNode, numbers: [u8; N]) -> Vec<String> {
    let mut states = Vec::new();
    for number in numbers {
        let task = show(node, id(number)).await;
        states.push(task["state"].as_str().unwrap().to_owned());
    }
    states
}

/// Redrives a task with its followers over REST, as soon as they know how it has ended.
async fn redrive_all(node: &TestNode, number: u8) -> Value {
    let path = format!("{}/redrive?with_followers=true", path(id(number)));
    loop {
        let answer = node.send(Method::POST, &path, None).await;
        if answer["kind"] != ErrorKind::Unavailable.name() {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_156_a_12_a_redrive_brings_back_what_was_cancelled_because_of_the_task() {
    let node = TestNode::start().await;
    let tasks = json!([
        id_of(1),
        {"id": id(2).to_string(), "parent": id_of(1)},
        {"id": id(3).to_string(), "after": [id_of(1)]},
        {"id": id(4).to_string(), "after": [id_of(3), id_of(2)]},
        {"id": id(5).to_string(), "after": [id_of(1)], "trigger_on": "failure"},
        {"id": id(6).to_string(), "after": [id_of(3)]},
    ]);
    batch(&node, tasks).await;
    // A user has cancelled the last one, so it does not come back.
    let cancel = format!("{}/cancel", path(id(6)));
    node.send(Method::POST, &cancel, Some(&json!({}))).await;
    assert_eq!(run_next(&node, false).await, id(1));
    for number in [2, 3, 4] {
        assert_eq!(ended(&node, id(number)).await["state"], "cancelled");
    }
    assert_eq!(run_next(&node, true).await, id(5));
    // Without its followers.
    let redrive = format!("{}/redrive", path(id(1)));
    let task = node.send(Method::POST, &redrive, None).await;
    assert!(
        task["state"] == "new" || task["state"] == "enqueued",
        "{task}"
    );
    assert_eq!(states(&node, [2, 3]).await, ["cancelled"; 2]);
    // With them, though it is redriven already; and the call may be repeated.
    let redrive = Redrive {
        job: mail(),
        id: id(1),
        with_followers: true,
    };
    let call = Call::default();
    // It is unavailable as long as a member notifies the others of its end.
    while let Err(error) = node.grpc().call(&call, redrive.clone()).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(states(&node, [2, 3, 4]).await, ["waiting"; 3]);
    node.frontend().call(&call, redrive).await.unwrap();
    assert_eq!(show(&node, id(3)).await["error"], Value::Null);
    assert_eq!(
        states(&node, [5, 6]).await,
        ["succeeded", "cancelled"],
        "what went on because of the failure stays, and what a user has cancelled"
    );
    for number in [1, 2, 3, 4] {
        assert_eq!(run_next(&node, true).await, id(number));
    }
    assert_eq!(ended(&node, id(4)).await["state"], "succeeded");
    let parent = show(&node, id(1)).await;
    assert_eq!(
        (&parent["children"], &parent["children_failed"]),
        (&"closed".into(), &0.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f_156_a_14_a_redriven_child_opens_the_families_above_it_again() {
    let node = TestNode::start().await;
    let tasks = json!([
        {"id": id(1).to_string(), "fail_on_child": true},
        {"id": id(2).to_string(), "parent": id_of(1), "fail_on_child": true},
        {"id": id(3).to_string(), "parent": id_of(2)},
        {"id": id(4).to_string(), "after": [id_of(2)]},
        {"id": id(5).to_string(), "after": [id_of(1)]},
    ]);
    batch(&node, tasks).await;
    for (number, succeeds) in [(1, true), (2, true), (3, false)] {
        assert_eq!(run_next(&node, succeeds).await, id(number));
    }
    for number in [4, 5] {
        let task = ended(&node, id(number)).await;
        assert_eq!(task["state"], "cancelled", "{task}");
    }
    let task = redrive_all(&node, 3).await;
    assert_eq!(task["id"], id(3).to_string(), "{task}");
    assert_eq!(states(&node, [4, 5]).await, ["waiting"; 2]);
    for number in [1, 2] {
        let parent = show(&node, id(number)).await;
        assert_eq!(
            (&parent["children"], &parent["open_children"]),
            (&"open".into(), &1.into())
        );
    }
    assert_eq!(run_next(&node, true).await, id(3));
    let mut last = [run_next(&node, true).await, run_next(&node, true).await];
    last.sort_unstable();
    assert_eq!(last, [id(4), id(5)]);
    let parent = show(&node, id(1)).await;
    assert_eq!(
        (&parent["children"], &parent["children_failed"]),
        (&"closed".into(), &0.into())
    );
    // One that has been cancelled itself cannot be redriven, with or without others.
    let cancelled = json!([{"id": id(9).to_string(), "delay_ms": 600_000, "after": []}]);
    batch(&node, cancelled).await;
    let cancel = format!("{}/cancel", path(id(9)));
    node.send(Method::POST, &cancel, Some(&json!({}))).await;
    let refused = redrive_all(&node, 9).await;
    assert_eq!(refused["reason"], "finished", "{refused}");
}
