//! Defects between the processes: clocks, servers, permissions, and nobody there at all.

use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};

use crate::{
    middle::{before, date_in, serve},
    site::Site,
};

#[tokio::test]
async fn g_18_a_service_whose_clock_is_an_hour_off_is_a_defect() {
    let mut site = Site::healthy().await;
    let middle = before(&site.dynamodb, &[], Some(date_in(3_600))).await;
    site.dynamodb.clone_from(&middle.url);
    let said = site.doctor(&[]).await;
    said.has_defects(&["clocks DynamoDB"]);
    said.has("defect", "clocks DynamoDB", "60 min ahead of", "chrony");
}

#[tokio::test]
async fn g_18_denied_actions_are_named() {
    let mut site = Site::healthy().await;
    let denied = [
        "UpdateItem",
        "BatchGetItem",
        "TransactWriteItems",
        "DescribeTimeToLive",
    ];
    let dynamodb = before(&site.dynamodb, &denied, None).await;
    let denied = ["DeleteMessageBatch", "GetQueueAttributes", "ListQueues"];
    let sqs = before(&site.sqs, &denied, None).await;
    site.dynamodb.clone_from(&dynamodb.url);
    site.sqs.clone_from(&sqs.url);
    let said = site.doctor(&[]).await;
    said.has_defects(&[
        "permissions dynamodb:BatchGetItem",
        "permissions dynamodb:UpdateItem",
        "permissions dynamodb:ConditionCheckItem",
        "permissions sqs:GetQueueAttributes",
        "permissions sqs:DeleteMessage",
    ]);
    let what = "permissions dynamodb:UpdateItem";
    said.has(
        "defect",
        what,
        "not authorized",
        "allow dynamodb:UpdateItem",
    );
    // What only setup needs.
    let what = "permissions dynamodb:DescribeTimeToLive";
    said.has("warning", what, "denied", "services at work do not need it");
    said.has("warning", "permissions sqs:ListQueues", "denied", "setup");
    said.has("unknown", "queues other queues", "", "");
    for fine in [
        "dynamodb:PutItem",
        "dynamodb:DeleteItem",
        "sqs:ChangeMessageVisibility",
    ] {
        assert!(
            said.all("ok").contains(&format!("permissions {fine}")),
            "{:#}",
            said.json
        );
    }

    let mut closed = Site::bare().await;
    let dynamodb = before(&closed.dynamodb, &["DescribeTable"], None).await;
    let sqs = before(&closed.sqs, &["GetQueueUrl"], None).await;
    closed.dynamodb.clone_from(&dynamodb.url);
    closed.sqs.clone_from(&sqs.url);
    let said = closed.doctor(&[]).await;
    let both = [
        "permissions dynamodb:DescribeTable",
        "permissions sqs:GetQueueUrl",
    ];
    said.has_defects(&both);
}

#[tokio::test]
async fn g_18_servers_of_another_version_not_ready_or_away_are_named() {
    let site = Site::healthy().await;
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
    // A port that was free a moment ago.
    let away = serve(Router::new()).await;
    let away_url = away.url.clone();
    drop(away);
    let (other, foreign) = (&other.url, &foreign.url);
    let servers = format!("{other},{foreign},{away_url}");
    let said = site.doctor(&["--server", &servers]).await;
    said.has_defects(&[
        &format!("clocks {other}"),
        &format!("processes {other}"),
        &format!("processes {other}"),
        &format!("processes {foreign}"),
        &format!("processes {away_url}"),
    ]);
    said.has(
        "warning",
        &format!("processes {other}"),
        "99.9.9",
        "same version",
    );
    said.has(
        "defect",
        &format!("clocks {other}"),
        "60 min ahead of",
        "chrony",
    );
    said.has(
        "defect",
        &format!("processes {foreign}"),
        "something else",
        "--server",
    );
    said.has(
        "defect",
        &format!("processes {away_url}"),
        "cannot be reached",
        "start it",
    );
    let details: Vec<_> = said.json["findings"]
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
            .any(|d| d.contains("no answer from its store for 90 s")),
        "{details:?}"
    );
}

#[tokio::test]
async fn g_18_where_nobody_answers_at_all_the_exit_code_says_so() {
    let mut site = Site::bare().await;
    let nobody = serve(Router::new()).await;
    let url = nobody.url.clone();
    drop(nobody);
    (site.dynamodb, site.sqs) = (url.clone(), url.clone());
    let said = site.doctor(&[]).await;
    assert_eq!(said.code, 5);
    let (table, queues) = (
        format!("table {}", site.table),
        format!("queues {}", site.prefix),
    );
    said.has("defect", &table, &url, "endpoint");
    said.has("defect", &queues, &url, "endpoint");
    assert_eq!(said.all("defect"), [table, queues]);
}
