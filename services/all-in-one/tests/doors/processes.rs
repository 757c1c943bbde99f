//! Registered processes through each door.

use dueline_api::{
    Call, Callable, Controller, ErrorReason, Registration, grpc::proto, operation::ListWorkers,
};
use dueline_domain::WorkerId;
use dueline_ports::{Metadata, ProcessKind};
use reqwest::Method;
use serde_json::json;

use crate::node::TestNode;

fn registration(id: &str, kind: ProcessKind) -> Registration {
    Registration {
        worker: WorkerId::parse(id).unwrap(),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 0,
        embedded: false,
        kind,
        metadata: Metadata::from([("zone".into(), "a".into())]),
    }
}

/// Ids and kinds through each door.
async fn listed(node: &TestNode, kind: &str) -> Vec<(String, String)> {
    let (call, operation) = (Call::default(), ListWorkers::of_kind(Some(kind)).unwrap());
    let embedded = node.frontend().call(&call, operation).await.unwrap();
    let grpc = node.grpc().call(&call, operation).await.unwrap();
    assert_eq!(grpc, embedded);
    let path = format!("workers?kind={kind}");
    let rest = node.send(Method::GET, &path, None).await;
    let rest: Vec<_> = rest["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    let ids = embedded.iter().map(|one| one.id.to_string());
    assert_eq!(rest, ids.collect::<Vec<_>>());
    let pair = |one: &dueline_ports::WorkerRecord| (one.id.to_string(), one.kind.to_string());
    embedded.iter().map(pair).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f_091_processes_of_any_kind_register_and_an_unknown_kind_is_refused() {
    let node = TestNode::start().await;
    // The services of the process are there from its start.
    let own = listed(&node, "all").await;
    let kinds: Vec<&str> = own.iter().map(|(_, kind)| &**kind).collect();
    assert_eq!(
        kinds,
        ["consumer", "controller", "frontend", "status-controller"]
    );

    let body = json!({"worker": "h1@1", "kind": "controller", "metadata": {"zone": "a"}});
    let alive = node.send(Method::POST, "workers", Some(&body)).await;
    assert!(alive["interval_ms"].as_u64().unwrap() > 0, "{alive}");
    let h2 = registration("h2@1", ProcessKind::Frontend);
    node.remote_controller().register_worker(h2).await.unwrap();
    let h3 = registration("h3@1", ProcessKind::Consumer);
    node.controller().register_worker(h3).await.unwrap();
    for (kind, id) in [
        ("controller", "h1@1"),
        ("frontend", "h2@1"),
        ("consumer", "h3@1"),
    ] {
        let of_kind = listed(&node, kind).await;
        assert!(
            of_kind.contains(&(id.to_owned(), kind.to_owned())),
            "{of_kind:?}"
        );
        assert!(
            of_kind.iter().all(|(_, other)| other == kind),
            "{of_kind:?}"
        );
    }
    // None of them is a worker.
    assert_eq!(listed(&node, "executor").await, []);
    let all = node.send(Method::GET, "workers?kind=all", None).await;
    let all = all["workers"].as_array().unwrap();
    for id in ["h1@1", "h2@1", "h3@1"] {
        let one = all.iter().find(|one| one["id"] == id).unwrap();
        assert_eq!(one["metadata"], json!({"zone": "a"}), "{one}");
    }

    // Who goes is gone.
    let gone = WorkerId::parse("h2@1").unwrap();
    node.controller().deregister_worker(&gone).await.unwrap();
    assert!(
        listed(&node, "frontend")
            .await
            .iter()
            .all(|(id, _)| id != "h2@1")
    );

    // A kind that does not exist, and too much metadata.
    let many: serde_json::Map<_, _> = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
    for (body, reason, field) in [
        (
            json!({"worker": "x", "kind": "butler"}),
            "unknown_kind",
            "kind",
        ),
        (
            json!({"worker": "x", "kind": "frontend", "metadata": many}),
            "too_many",
            "metadata",
        ),
        (
            json!({"worker": "x", "kind": "frontend", "metadata": {"": "v"}}),
            "too_long",
            "metadata",
        ),
    ] {
        let refused = node.send(Method::POST, "workers", Some(&body)).await;
        assert_eq!(
            (&refused["reason"], &refused["field"]),
            (&json!(reason), &json!(field))
        );
    }
    let refused = node.send(Method::GET, "workers?kind=butler", None).await;
    assert_eq!(refused["reason"], "unknown_kind", "{refused}");
    let mut raw = node.grpc().raw();
    let request = proto::ListWorkersRequest {
        kind: "butler".into(),
    };
    let status = raw.list_workers(request).await.unwrap_err();
    assert!(
        status.message().contains("unknown kind 'butler'"),
        "{status:?}"
    );
    let refused = ListWorkers::of_kind(Some("butler")).unwrap_err();
    assert_eq!(refused.reason(), &ErrorReason::UnknownKind);
}
