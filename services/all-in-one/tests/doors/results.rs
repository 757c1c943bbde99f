//! What predecessors have returned, through each door.

use dueline_api::{Assignment, v1::AssignmentView};
use dueline_domain::TaskEnd;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    families::{claim, id, path},
    node::TestNode,
};

/// Completes the claimed task with this result.
async fn complete(node: &TestNode, work: &Assignment, mut result: Value) {
    result["token"] = work.token.to_string().into();
    let path = format!("work/mail/{}/complete", work.id);
    let answer = node.send(Method::POST, &path, Some(&result)).await;
    assert!(answer.get("reason").is_none(), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_095_what_predecessors_have_returned_reaches_the_follower_through_each_door() {
    let node = TestNode::start().await;
    let id_of = |number: u8| json!({"id": id(number).to_string()});
    let after = json!([id_of(1), id_of(2), id_of(3), id_of(4)]);
    let mut batch = vec![id_of(1), id_of(2), id_of(3), id_of(4)];
    for number in 5..=7 {
        let more = json!({"id": id(number).to_string(), "after": after, "trigger_on": "always"});
        batch.push(more);
    }
    node.send(Method::POST, "jobs/mail/tasks:batch", Some(&json!(batch)))
        .await;
    for _ in 1..=4 {
        let work = claim(&*node.controller()).await;
        assert_eq!(work.results, []);
        let result = match work.id {
            it if it == id(1) => json!({"result": {"rows": 3}}),
            // With the first it is more than what is passed on.
            it if it == id(2) => json!({"result_text": "x".repeat(65_530)}),
            it if it == id(3) => json!({"result_base64": "AP8="}),
            _ => json!({}),
        };
        complete(&node, &work, result).await;
    }
    let embedded = claim(&*node.controller()).await;
    let by_grpc = claim(&node.remote_controller()).await;
    let ask = json!({"worker": "w@1", "jobs": ["mail"], "wait_ms": 20_000});
    let by_rest = node.send(Method::POST, "work:next", Some(&ask)).await;
    let shown = &by_rest["tasks"][0]["results"];
    let line = |number: u8, bytes: Value| {
        let end = TaskEnd::Succeeded.name();
        json!({"job": "mail", "id": id(number).to_string(), "end": end, "result_bytes": bytes})
    };
    let mut expected = vec![
        line(1, 10.into()),
        line(2, 65_530.into()),
        line(3, 2.into()),
        line(4, Value::Null),
    ];
    expected[0]["result"] = json!({"rows": 3});
    expected[2]["result_base64"] = "AP8=".into();
    assert_eq!(shown, &json!(expected));
    let view: AssignmentView = serde_json::from_value(by_rest["tasks"][0].clone()).unwrap();
    let view = Assignment::try_from(view).unwrap();
    for work in [&embedded, &by_grpc] {
        assert_eq!(work.results, view.results);
    }
    assert!(view.results[1].is_only_named());
    // A result that was not passed on can be asked for.
    let task = node.send(Method::GET, &path(id(2)), None).await;
    assert_eq!(task["result_text"].as_str().map(str::len), Some(65_530));
}
