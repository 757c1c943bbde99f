//! Defects of clocks, servers and permissions, and a deployment that cannot be reached.

use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};

use crate::{
    deployment::TestDeployment,
    proxy::{date_in, proxy, serve},
};

#[tokio::test]
async fn g_18_a_service_whose_clock_is_one_hour_ahead_is_a_defect() {
    let mut deployment = TestDeployment::healthy().await;
    let proxy = proxy(&deployment.dynamodb, &[], Some(date_in(3_600))).await;
    deployment.dynamodb.clone_from(&proxy.url);
    let output = deployment.doctor(&[]).await;
    output.has_defects(&["clocks DynamoDB"]);
    output.has("defect", "clocks DynamoDB", "60 min ahead of", "chrony");
}

#[tokio::test]
async fn g_18_denied_actions_are_named() {
    let mut deployment = TestDeployment::healthy().await;
    let denied = [
        "UpdateItem",
        "BatchGetItem",
        "TransactWriteItems",
        "DescribeTimeToLive",
    ];
    let dynamodb = proxy(&deployment.dynamodb, &denied, None).await;
    let denied = ["DeleteMessageBatch", "GetQueueAttributes", "ListQueues"];
    let sqs = proxy(&deployment.sqs, &denied, None).await;
    deployment.dynamodb.clone_from(&dynamodb.url);
    deployment.sqs.clone_from(&sqs.url);
    let output = deployment.doctor(&[]).await;
    output.has_defects(&[
        "permissions dynamodb:BatchGetItem",
        "permissions dynamodb:UpdateItem",
        "permissions dynamodb:ConditionCheckItem",
        "permissions sqs:GetQueueAttributes",
        "permissions sqs:DeleteMessage",
    ]);
    let what = "permissions dynamodb:UpdateItem";
    output.has(
        "defect",
        what,
        "not authorized",
        "allow dynamodb:UpdateItem",
    );
    // Actions that only setup needs.
    let what = "permissions dynamodb:DescribeTimeToLive";
    output.has("warning", what, "denied", "running services do not need it");
    output.has("warning", "permissions sqs:ListQueues", "denied", "setup");
    output.has("unknown", "queues other queues", "", "");
    for allowed in [
        "dynamodb:PutItem",
        "dynamodb:DeleteItem",
        "sqs:ChangeMessageVisibility",
    ] {
        assert!(
            output.all("ok").contains(&format!("permissions {allowed}")),
            "{:#}",
            output.json
        );
    }

    let mut closed = TestDeployment::bare().await;
    let dynamodb = proxy(&closed.dynamodb, &["DescribeTable"], None).await;
    let sqs = proxy(&closed.sqs, &["GetQueueUrl"], None).await;
    closed.dynamodb.clone_from(&dynamodb.url);
    closed.sqs.clone_from(&sqs.url);
    let output = closed.doctor(&[]).await;
    let both = [
        "permissions dynamodb:DescribeTable",
        "permissions sqs:GetQueueUrl",
    ];
    output.has_defects(&both);
}

#[tokio::test]
async fn g_18_servers_that_differ_are_not_ready_or_are_unreachable_are_named() {
    let deployment = TestDeployment::healthy().await;
    let health = r#"{"status":"ok","version":"99.9.9","store_connection":[{"state":"down","ago_ms":90000}]}"#;
    let date = [(header::DATE, date_in(3_600))];
    let other = Router::new()
        .route("/healthz", get(async move || (date, health)))
        .route(
            "/readyz",
            get(async || {
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    r#"{"detail":"not ready: stopping"}"#,
                )
            }),
        );
    let other = serve(other).await;
    let foreign = serve(Router::new().route("/healthz", get(async || "fine, and you?"))).await;
    // A free port at which no server listens.
    let stopped = serve(Router::new()).await;
    let stopped_url = stopped.url.clone();
    drop(stopped);
    let (other, foreign) = (&other.url, &foreign.url);
    let servers = format!("{other},{foreign},{stopped_url}");
    let output = deployment.doctor(&["--server", &servers]).await;
    output.has_defects(&[
        &format!("clocks {other}"),
        &format!("processes {other}"),
        &format!("processes {other}"),
        &format!("processes {foreign}"),
        &format!("processes {stopped_url}"),
    ]);
    output.has(
        "warning",
        &format!("processes {other}"),
        "99.9.9",
        "same version",
    );
    output.has(
        "defect",
        &format!("clocks {other}"),
        "60 min ahead of",
        "chrony",
    );
    output.has(
        "defect",
        &format!("processes {foreign}"),
        "not from dueline",
        "--server",
    );
    output.has(
        "defect",
        &format!("processes {stopped_url}"),
        "cannot be reached",
        "start it",
    );
    let details: Vec<_> = output.json["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|f| f["detail"].to_string())
        .collect();
    assert!(
        details.iter().any(|d| d.contains("not ready: stopping")),
        "{details:?}"
    );
    assert!(
        details
            .iter()
            .any(|d| d.contains("its store has not responded for 90 s")),
        "{details:?}"
    );
}

#[tokio::test]
async fn g_18_an_unreachable_deployment_has_its_own_exit_code() {
    let mut deployment = TestDeployment::bare().await;
    let stopped = serve(Router::new()).await;
    let url = stopped.url.clone();
    drop(stopped);
    (deployment.dynamodb, deployment.sqs) = (url.clone(), url.clone());
    let output = deployment.doctor(&[]).await;
    assert_eq!(output.code, 5);
    let (table, queues) = (
        format!("table {}", deployment.table),
        format!("queues {}", deployment.prefix),
    );
    output.has("defect", &table, &url, "endpoint");
    output.has("defect", &queues, &url, "endpoint");
    assert_eq!(output.all("defect"), [table, queues]);
}
