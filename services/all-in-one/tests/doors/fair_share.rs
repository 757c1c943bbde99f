//! Fairness keys through each door.

use dueline_api::{
    Call, Callable,
    operation::{GetJob, GetTask, PutJob, Submit},
};
use dueline_domain::{Due, FairShare, Job, TaskOptions};
use reqwest::Method;
use serde_json::json;

use crate::node::{TestNode, mail, new_task};

#[tokio::test(flavor = "multi_thread")]
async fn g_07_a_fair_share_and_the_key_of_a_task_are_stored_and_shown_alike() {
    let node = TestNode::start().await;
    let (grpc, embedded, call) = (node.grpc(), node.frontend(), Call::default());
    let share = |running_max| Some(FairShare { running_max });
    let definition = |running_max| Job {
        fair_share: share(running_max),
        ..Job::new(mail())
    };
    let get = || GetJob::definition(mail());
    let body = json!({"fair_share": {"running_max": 7}});
    let put = node.send(Method::PUT, "jobs/mail", Some(&body)).await;
    assert_eq!(put["fair_share"], body["fair_share"], "{put}");
    assert_eq!(
        grpc.call(&call, get()).await.unwrap().job.fair_share,
        share(Some(7))
    );
    let put = PutJob::from(definition(Some(8)));
    grpc.call(&call, put).await.unwrap();
    let shown = node.send(Method::GET, "jobs/mail", None).await;
    assert_eq!(shown["fair_share"]["running_max"], 8, "{shown}");
    embedded
        .call(&call, PutJob::from(definition(None)))
        .await
        .unwrap();
    let shown = node.send(Method::GET, "jobs/mail", None).await;
    assert_eq!(shown["fair_share"], json!({}), "{shown}");
    // A definition that says nothing of it keeps it.
    let put = node.send(Method::PUT, "jobs/mail", Some(&json!({}))).await;
    assert_eq!(put["fair_share"], json!({}), "{put}");

    let body = json!({"fairness_key": "acme", "delay_ms": 600_000});
    let by_rest = node
        .send(Method::POST, "jobs/mail/tasks", Some(&body))
        .await;
    let by_rest = by_rest["id"].as_str().unwrap().parse().unwrap();
    let submit = || {
        let options = TaskOptions {
            fairness_key: Some("acme".into()),
            ..TaskOptions::default()
        };
        let task = new_task(Due::Now, options);
        Submit { tasks: vec![task] }
    };
    let by_grpc = grpc.call(&call, submit()).await.unwrap().remove(0);
    let by_rust = embedded.call(&call, submit()).await.unwrap().remove(0);
    for id in [by_rest, by_grpc.unwrap().id, by_rust.unwrap().id] {
        let get = || GetTask {
            job: mail(),
            id,
            wait: None,
        };
        let path = format!("jobs/mail/tasks/{id}");
        let shown = node.send(Method::GET, &path, None).await;
        assert_eq!(shown["fairness_key"], "acme", "{shown}");
        assert_eq!(grpc.call(&call, get()).await.unwrap().lane_name(), "acme");
        assert_eq!(
            embedded.call(&call, get()).await.unwrap().lane_name(),
            "acme"
        );
    }
}
