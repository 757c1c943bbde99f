//! Deploys the template to an engine and checks what AWS's APIs report.
//!
//! The engine has no scaling, so the services are not deployed. It ignores expiry, backup and encryption of the table;
//! `template.rs` checks those.

use std::sync::OnceLock;

use dueline_tests_engines::{Engine, unique};
use dueline_tests_infra::{python, root, run_python};
use serde_json::{Value, json};

/// A deployed stack, as AWS's APIs describe it.
struct DeployedStack {
    table: String,
    prefix: String,
    found: Value,
}

fn deployed() -> &'static DeployedStack {
    static DEPLOYED: OnceLock<DeployedStack> = OnceLock::new();
    DEPLOYED.get_or_init(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let engine = runtime.block_on(Engine::ministack());
        let (table, prefix) = (unique("infra"), unique("infra"));
        let result = run_python(
            python()
                .arg(root().join("infra/deploy_check.py"))
                .args([
                    &table,
                    &format!("TableName={table}"),
                    &format!("QueuePrefix={prefix}"),
                ])
                .env("AWS_ENDPOINT_URL", engine.url())
                .env("AWS_REGION", "us-east-1")
                .env("AWS_DEFAULT_REGION", "us-east-1")
                .env("AWS_ACCESS_KEY_ID", "test")
                .env("AWS_SECRET_ACCESS_KEY", "test"),
        );
        assert!(result.success, "{}", result.errors);
        let found = serde_json::from_str(&result.output).expect("JSON");
        DeployedStack {
            table,
            prefix,
            found,
        }
    })
}

#[test]
fn f_147_one_command_creates_the_table_with_its_keys_and_its_sparse_index() {
    let DeployedStack { table, found, .. } = deployed();
    let created = &found["tables"]["Table"];
    assert_eq!(created["TableName"], **table);
    assert_eq!(
        created["BillingModeSummary"]["BillingMode"],
        "PAY_PER_REQUEST"
    );
    assert_eq!(
        created["KeySchema"],
        json!([
            { "AttributeName": "pk", "KeyType": "HASH" },
            { "AttributeName": "sk", "KeyType": "RANGE" },
        ])
    );
    let mut kinds: Vec<_> = created["AttributeDefinitions"]
        .as_array()
        .expect("attributes")
        .iter()
        .map(|one| (one["AttributeName"].as_str(), one["AttributeType"].as_str()))
        .collect();
    kinds.sort_unstable();
    let kind = |name, kind| (Some(name), Some(kind));
    assert_eq!(
        kinds,
        [
            kind("d", "S"),
            kind("h", "N"),
            kind("pk", "S"),
            kind("sk", "B")
        ]
    );
    let indexes = created["GlobalSecondaryIndexes"]
        .as_array()
        .expect("indexes");
    assert_eq!(indexes.len(), 1);
    assert_eq!(indexes[0]["IndexName"], "due");
    assert_eq!(indexes[0]["Projection"]["ProjectionType"], "KEYS_ONLY");
    assert_eq!(
        indexes[0]["KeySchema"],
        json!([
            { "AttributeName": "d", "KeyType": "HASH" },
            { "AttributeName": "h", "KeyType": "RANGE" },
        ])
    );
}

#[test]
fn quarantined_messages_are_kept_for_fourteen_days() {
    let DeployedStack { prefix, found, .. } = deployed();
    let queue = &found["queues"]["QuarantineQueue"];
    let arn = queue["QueueArn"].as_str().expect("a name");
    assert!(arn.ends_with(&format!(":{prefix}--quarantine")), "{arn}");
    assert_eq!(queue["MessageRetentionPeriod"], "1209600");
    assert_eq!(queue["SqsManagedSseEnabled"], "true");
    let redrive: Value =
        serde_json::from_str(queue["RedriveAllowPolicy"].as_str().expect("a policy"))
            .expect("JSON");
    assert_eq!(redrive, json!({ "redrivePermission": "allowAll" }));
    let policy = queue["Policy"].as_str().expect("a policy");
    assert!(policy.contains("aws:SecureTransport"), "{policy}");
}

#[test]
fn roles_may_access_only_this_table_its_index_and_queues_of_this_prefix() {
    let DeployedStack {
        table,
        prefix,
        found,
        ..
    } = deployed();
    let account = "us-east-1:000000000000";
    let (table, queues) = (
        format!("arn:aws:dynamodb:{account}:table/{table}"),
        format!("arn:aws:sqs:{account}:{prefix}-*"),
    );
    let allowed = [table.clone(), format!("{table}/index/due"), queues];
    let roles = found["roles"].as_object().expect("roles");
    assert_eq!(roles.len(), 6, "{:?}", roles.keys());
    for (name, role) in roles {
        let statements = role["statements"].as_array().expect("statements");
        assert_eq!(statements.is_empty(), name == "ExecutorRole", "{name}");
        for statement in statements {
            if statement["Action"] == "sqs:ListQueues" {
                assert_eq!(name, "SetupRole");
                continue;
            }
            let resources = match &statement["Resource"] {
                Value::Array(many) => many.clone(),
                one => vec![one.clone()],
            };
            for resource in resources {
                let resource = resource.as_str().expect("text");
                assert!(
                    allowed.iter().any(|one| one == resource),
                    "{name}: {resource}"
                );
            }
        }
        let denied = statements.iter().any(|statement| {
            statement["Effect"] == "Deny"
                && statement["Condition"]["Bool"]["aws:SecureTransport"] == "false"
        });
        assert_eq!(denied, name != "ExecutorRole", "{name}");
    }
}

#[test]
fn alarms_watch_this_table_and_this_queue_and_notify_the_topic() {
    let DeployedStack {
        table,
        prefix,
        found,
    } = deployed();
    let alarms = found["alarms"].as_array().expect("alarms");
    let topic = &found["outputs"]["AlarmTopicArn"];
    assert!(topic.is_string());
    let (table, queue) = (table.as_str(), format!("{prefix}--quarantine"));
    let mut metrics = Vec::new();
    for alarm in alarms {
        assert_eq!(
            alarm["AlarmActions"],
            json!([topic]),
            "{}",
            alarm["AlarmName"]
        );
        let dimensions = alarm["Dimensions"].as_array().expect("dimensions");
        assert!(
            dimensions
                .iter()
                .any(|one| one["Value"] == table || one["Value"] == *queue),
            "{}",
            alarm["AlarmName"]
        );
        let index = dimensions.iter().any(|one| one["Value"] == "due");
        metrics.push((alarm["MetricName"].as_str().expect("a name"), index));
    }
    metrics.sort_unstable();
    assert_eq!(
        metrics,
        [
            ("ApproximateAgeOfOldestMessage", false),
            ("ApproximateNumberOfMessagesVisible", false),
            ("ConsumedWriteCapacityUnits", false),
            ("ConsumedWriteCapacityUnits", true),
            ("ReadThrottleEvents", false),
            ("ReadThrottleEvents", true),
            ("SystemErrors", false),
            ("SystemErrors", false),
            ("SystemErrors", false),
            ("WriteThrottleEvents", false),
            ("WriteThrottleEvents", true),
        ]
    );
}

#[test]
fn outputs_are_the_arguments_of_the_services() {
    let DeployedStack {
        table,
        prefix,
        found,
    } = deployed();
    let outputs = &found["outputs"];
    assert_eq!(
        outputs["Store"],
        format!("dynamodb://{table}?region=us-east-1")
    );
    assert_eq!(outputs["Queue"], format!("sqs://{prefix}?region=us-east-1"));
    for role in [
        "Frontend",
        "Consumer",
        "StatusController",
        "Controller",
        "Executor",
        "Setup",
    ] {
        assert!(outputs[format!("{role}RoleArn")].is_string(), "{role}");
    }
}
