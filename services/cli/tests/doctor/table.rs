//! Defects of the table, the settings and the processes.

use aws_sdk_dynamodb::{
    Client,
    primitives::Blob,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
        ScalarAttributeType as Kind, TimeToLiveSpecification,
    },
};

use crate::deployment::{JOB, TestDeployment, doctor};

/// All items of the table, in a form that can be compared.
async fn all_items(client: &Client, table: &str) -> Vec<String> {
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

/// Creates a table with a key and without anything else.
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
async fn g_18_a_healthy_deployment_has_no_defect_and_is_not_changed() {
    let deployment = TestDeployment::healthy().await;
    let client = deployment.dynamodb().await;
    let before = all_items(&client, &deployment.table).await;
    let output = deployment.doctor(&[]).await;
    output.has_defects(&[]);
    // Engines differ in what they report about backups. There must be no other warning.
    let mut warnings = output.all("warning");
    warnings.retain(|name| name != "table backups");
    assert!(warnings.is_empty(), "{:#}", output.json);
    for ok in [
        format!("table {}", deployment.table),
        "table index due".into(),
        "table layout".into(),
        format!("queues {}--quarantine", deployment.prefix),
        format!("queues {}-{JOB}", deployment.prefix),
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
            output.all("ok").contains(&ok),
            "'{ok}' is not ok in {:#}",
            output.json
        );
    }
    assert_eq!(
        all_items(&client, &deployment.table).await,
        before,
        "the doctor changes nothing"
    );
}

#[tokio::test]
async fn g_18_a_missing_table_is_a_defect_that_setup_fixes() {
    let deployment = TestDeployment::bare().await;
    let output = deployment.doctor(&[]).await;
    output.has_defects(&[&format!("table {}", deployment.table)]);
    let setup = format!(
        "dueline setup --store '{}' --queue '{}'",
        deployment.store_uri(),
        deployment.queue_uri()
    );
    output.has(
        "defect",
        &format!("table {}", deployment.table),
        "does not exist",
        &setup,
    );
    output.has(
        "warning",
        &format!("queues {}--quarantine", deployment.prefix),
        "does not exist",
        &setup,
    );
    output.has("unknown", "jobs all", "", "");
}

#[tokio::test]
async fn g_18_a_table_without_its_index_or_with_another_key_is_a_defect() {
    let deployment = TestDeployment::bare().await;
    let client = deployment.dynamodb().await;
    keyed_table(
        &client,
        &deployment.table,
        [("pk", Kind::S), ("sk", Kind::B)],
    )
    .await;
    let output = deployment.doctor(&[]).await;
    let what = "table index due";
    output.has("defect", what, "add the index 'due'", "dueline setup");
    output.has("defect", "table layout", "not set up", "dueline setup");

    let deployment = TestDeployment::bare().await;
    keyed_table(
        &client,
        &deployment.table,
        [("id", Kind::S), ("at", Kind::N)],
    )
    .await;
    let output = deployment.doctor(&[]).await;
    let what = format!("table {}", deployment.table);
    output.has_defects(&[&what]);
    output.has(
        "defect",
        &what,
        "its key is id (S), at (N)",
        "name another table",
    );
}

#[tokio::test]
async fn g_18_a_table_of_a_newer_program_is_a_defect() {
    let deployment = TestDeployment::healthy().await;
    let client = deployment.dynamodb().await;
    let call = client.update_item().table_name(&deployment.table);
    let call = call
        .key("pk", AttributeValue::S("meta".into()))
        .key("sk", AttributeValue::B(Blob::new("schema")))
        .update_expression("SET v = :v")
        .expression_attribute_values(":v", AttributeValue::N("99".into()));
    call.send().await.expect("a newer version");
    let output = deployment.doctor(&[]).await;
    let what = format!("table {}", deployment.table);
    output.has_defects(&[&what]);
    output.has(
        "defect",
        &what,
        "version 99 is newer",
        "use a newer dueline",
    );
}

#[tokio::test]
async fn g_18_expiry_that_is_off_is_a_defect() {
    let deployment = TestDeployment::healthy().await;
    let client = deployment.dynamodb().await;
    let off = TimeToLiveSpecification::builder()
        .enabled(false)
        .attribute_name("x");
    let call = client.update_time_to_live().table_name(&deployment.table);
    let call = call.time_to_live_specification(off.build().expect("a setting"));
    call.send().await.expect("expiry is off");
    let output = deployment.doctor(&[]).await;
    output.has_defects(&["table expiry"]);
    output.has("defect", "table expiry", "off", "dueline setup");
    deployment.set_up().await;
    deployment.doctor(&[]).await.has_defects(&[]);
}

#[tokio::test]
async fn g_18_settings_and_job_that_contradict_each_other_are_defects() {
    let deployment = TestDeployment::healthy().await;
    let home = tempfile::tempdir().expect("a folder");
    let interval = "--set=worker.heartbeat_interval_ms=3000";
    let args = [
        "--store",
        &deployment.store_uri(),
        "--queue=local:",
        interval,
    ];
    let output = doctor(home.path(), &args).await;
    let settings = "worker.heartbeat_interval_ms = 3000, defaults.heartbeat_timeout_ms = 8000";
    output.has_defects(&[&format!("settings {settings}"), &format!("jobs {JOB}")]);
    let what = format!("jobs {JOB}");
    output.has(
        "defect",
        &what,
        "heartbeat timeout 8000 ms",
        "lower worker.heartbeat_interval_ms",
    );
    output.has(
        "warning",
        "settings store, queue",
        "its own local queue",
        "--queue sqs://",
    );
}

#[tokio::test]
async fn g_18_a_store_without_processes_and_an_unclaimed_late_task_are_warnings() {
    let deployment = TestDeployment::bare().await;
    deployment.set_up().await;
    let output = deployment.doctor(&[]).await;
    output.has_defects(&[]);
    output.has(
        "warning",
        "processes consumers",
        "nothing finds due tasks",
        "dueline-consumer",
    );
    output.has(
        "warning",
        "processes executors",
        "nothing runs tasks",
        "dueline-executor",
    );

    let deployment = TestDeployment::healthy().await;
    deployment.overdue_task(60_000).await;
    let output = deployment.doctor(&[]).await;
    output.has_defects(&[]);
    output.has("warning", &format!("backlog {JOB}"), " s late", "processes");
}
