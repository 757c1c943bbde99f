//! Defects of the table, the settings and the processes.

use aws_sdk_dynamodb::{
    Client,
    primitives::Blob,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
        ScalarAttributeType as Kind, TimeToLiveSpecification,
    },
};

use crate::site::{JOB, Site, doctor};

/// Everything in the table, in a form that can be compared.
async fn everything(client: &Client, table: &str) -> Vec<String> {
    let scan = client
        .scan()
        .table_name(table)
        .send()
        .await
        .expect("a scan");
    let item = |item: &std::collections::HashMap<String, AttributeValue>| {
        let sorted: std::collections::BTreeMap<_, _> = item.iter().collect();
        format!("{sorted:?}")
    };
    let mut items: Vec<_> = scan.items().iter().map(item).collect();
    items.sort();
    items
}

/// A table with a key, and nothing else.
async fn keyed_table(client: &Client, table: &str, keys: [(&str, Kind); 2]) {
    let mut call = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest);
    for ((name, kind), role) in keys.into_iter().zip([KeyType::Hash, KeyType::Range]) {
        let attribute = AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(kind);
        let element = KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(role);
        call = call.attribute_definitions(attribute.build().expect("an attribute"));
        call = call.key_schema(element.build().expect("a key"));
    }
    call.send().await.expect("a table");
}

#[tokio::test]
async fn g_18_a_healthy_deployment_has_no_defect_and_stays_as_it_is() {
    let site = Site::healthy().await;
    let client = site.dynamodb().await;
    let before = everything(&client, &site.table).await;
    let said = site.doctor(&[]).await;
    said.has_defects(&[]);
    // Engines differ in what they tell of backups; nothing else is worth a warning.
    let mut warnings = said.all("warning");
    warnings.retain(|name| name != "table backups");
    assert!(warnings.is_empty(), "{:#}", said.json);
    for ok in [
        format!("table {}", site.table),
        "table index due".into(),
        "table layout".into(),
        format!("queues {}--set-aside", site.prefix),
        format!("queues {}-{JOB}", site.prefix),
        "queues other queues".into(),
        "permissions dynamodb:DescribeTable".into(),
        "permissions dynamodb:GetItem".into(),
        "permissions dynamodb:BatchGetItem".into(),
        "permissions dynamodb:Query".into(),
        "permissions dynamodb:Query on the index".into(),
        "permissions dynamodb:PutItem".into(),
        "permissions dynamodb:UpdateItem".into(),
        "permissions dynamodb:DeleteItem".into(),
        "permissions dynamodb:BatchWriteItem".into(),
        "permissions dynamodb:ConditionCheckItem".into(),
        "permissions sqs:GetQueueUrl".into(),
        "permissions sqs:GetQueueAttributes".into(),
        "permissions sqs:ListQueues".into(),
        "permissions sqs:ListQueueTags".into(),
        "clocks DynamoDB".into(),
        "clocks SQS".into(),
        "processes consumers".into(),
        "processes executors".into(),
        "jobs timeouts".into(),
        "backlog all".into(),
        "settings all".into(),
    ] {
        assert!(
            said.all("ok").contains(&ok),
            "'{ok}' is not ok in {:#}",
            said.json
        );
    }
    assert_eq!(
        everything(&client, &site.table).await,
        before,
        "it changes nothing"
    );
}

#[tokio::test]
async fn g_18_a_missing_table_is_a_defect_that_setup_mends() {
    let site = Site::bare().await;
    let said = site.doctor(&[]).await;
    said.has_defects(&[&format!("table {}", site.table)]);
    let setup = format!(
        "dueline setup --store '{}' --queue '{}'",
        site.store_uri(),
        site.queue_uri()
    );
    said.has(
        "defect",
        &format!("table {}", site.table),
        "does not exist",
        &setup,
    );
    said.has(
        "warning",
        &format!("queues {}--set-aside", site.prefix),
        "does not exist",
        &setup,
    );
    said.has("unknown", "jobs all", "", "");
}

#[tokio::test]
async fn g_18_a_table_without_its_index_or_with_another_key_is_a_defect() {
    let site = Site::bare().await;
    let client = site.dynamodb().await;
    keyed_table(&client, &site.table, [("pk", Kind::S), ("sk", Kind::B)]).await;
    let said = site.doctor(&[]).await;
    let what = "table index due";
    said.has("defect", what, "add the index 'due'", "dueline setup");
    said.has("defect", "table layout", "not set up", "dueline setup");

    let site = Site::bare().await;
    keyed_table(&client, &site.table, [("id", Kind::S), ("at", Kind::N)]).await;
    let said = site.doctor(&[]).await;
    let what = format!("table {}", site.table);
    said.has_defects(&[&what]);
    said.has(
        "defect",
        &what,
        "its key is id (S), at (N)",
        "name another table",
    );
}

#[tokio::test]
async fn g_18_a_table_of_a_newer_program_is_a_defect() {
    let site = Site::healthy().await;
    let client = site.dynamodb().await;
    let call = client.update_item().table_name(&site.table);
    let call = call
        .key("pk", AttributeValue::S("meta".into()))
        .key("sk", AttributeValue::B(Blob::new("schema")))
        .update_expression("SET v = :v")
        .expression_attribute_values(":v", AttributeValue::N("99".into()));
    call.send().await.expect("a newer version");
    let said = site.doctor(&[]).await;
    let what = format!("table {}", site.table);
    said.has_defects(&[&what]);
    said.has(
        "defect",
        &what,
        "version 99 is newer",
        "use a newer dueline",
    );
}

#[tokio::test]
async fn g_18_expiry_that_is_off_is_a_defect() {
    let site = Site::healthy().await;
    let client = site.dynamodb().await;
    let off = TimeToLiveSpecification::builder()
        .enabled(false)
        .attribute_name("x");
    let call = client.update_time_to_live().table_name(&site.table);
    let call = call.time_to_live_specification(off.build().expect("a setting"));
    call.send().await.expect("it is off");
    let said = site.doctor(&[]).await;
    said.has_defects(&["table expiry"]);
    said.has("defect", "table expiry", "off", "dueline setup");
    site.set_up().await;
    site.doctor(&[]).await.has_defects(&[]);
}

#[tokio::test]
async fn g_18_settings_and_job_that_contradict_each_other_are_defects() {
    let site = Site::healthy().await;
    let home = tempfile::tempdir().expect("a folder");
    let interval = "--set=worker.heartbeat_interval_ms=3000";
    let words = ["--store", &site.store_uri(), "--queue=local:", interval];
    let said = doctor(home.path(), &words).await;
    let settings = "worker.heartbeat_interval_ms = 3000, defaults.heartbeat_timeout_ms = 8000";
    said.has_defects(&[&format!("settings {settings}"), &format!("jobs {JOB}")]);
    let what = format!("jobs {JOB}");
    said.has(
        "defect",
        &what,
        "heartbeat timeout 8000 ms",
        "lower worker.heartbeat_interval_ms",
    );
    said.has(
        "warning",
        "settings store, queue",
        "lives inside each one",
        "--queue sqs://",
    );
}

#[tokio::test]
async fn g_18_a_store_that_nobody_works_on_and_a_task_left_lying_are_warned_of() {
    let site = Site::bare().await;
    site.set_up().await;
    let said = site.doctor(&[]).await;
    said.has_defects(&[]);
    said.has(
        "warning",
        "processes consumers",
        "nothing finds due tasks",
        "dueline-consumer",
    );
    said.has(
        "warning",
        "processes executors",
        "nothing runs tasks",
        "dueline-executor",
    );

    let site = Site::healthy().await;
    site.overdue_task(60_000).await;
    let said = site.doctor(&[]).await;
    said.has_defects(&[]);
    said.has("warning", &format!("backlog {JOB}"), " s late", "processes");
}
