//! The template on an engine: what AWS's own interfaces say afterwards.
//!
//! The engine has no scaling, so it gets everything but the services. It forgets expiry, backup and encryption of the
//! table: `template.rs` reads those.

use std::sync::OnceLock;

use dueline_tests_engines::{Engine, unique};
use dueline_tests_infra::{python, root, run_python};
use serde_json::{Value, json};

/// A deployed stack, as AWS's interfaces describe it.
struct Deployed {
    table: String,
    prefix: String,
    found: Value,
}

fn deployed() -> &'static Deployed {
    static DEPLOYED: OnceLock<Deployed> = OnceLock::new();
    DEPLOYED.get_or_init(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let engine = runtime.block_on(Engine::ministack());
        let (table, prefix) = (unique("infra"), unique("infra"));
        let answer = run_python(
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
        assert!(answer.success, "{}", answer.errors);
        let found = serde_json::from_str(&answer.output).expect("JSON");
        Deployed {
            table,
            prefix,
            found,
        }
    })
}

#[test]
fn f_147_one_command_makes_the_table_with_its_keys_and_its_sparse_index() {
    let Deployed { table, found, .. } = deployed();
    let made = &found["tables"]["Table"];
    assert_eq!(made["TableName"], **table);
    assert_eq!(made["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(
        made["KeySchema"],
        json!([
            { "AttributeName": "pk", "KeyType": "HASH" },
            { "AttributeName": "sk", "KeyType": "RANGE" },
        ])
    );
    let mut kinds: Vec<_> = made["AttributeDefinitions"]
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
    let indexes = made["GlobalSecondaryIndexes"].as_array().expect("indexes");
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
fn what_nobody_can_read_is_kept_for_fourteen_days() {
    let Deployed { prefix, found, .. } = deployed();
    let queue = &found["queues"]["SetAsideQueue"];
    let arn = queue["QueueArn"].as_str().expect("a name");
    assert!(arn.ends_with(&format!(":{prefix}--set-aside")), "{arn}");
    assert_eq!(queue["MessageRetentionPeriod"], "1209600");
    assert_eq!(queue["SqsManagedSseEnabled"], "true");
    let from: Value = serde_json::from_str(queue["RedriveAllowPolicy"].as_str().expect("a policy"))
        .expect("JSON");
    assert_eq!(from, json!({ "redrivePermission": "allowAll" }));
    let policy = queue["Policy"].as_str().expect("a policy");
    assert!(policy.contains("aws:SecureTransport"), "{policy}");
}

#[test]
fn roles_reach_this_table_its_index_and_queues_of_this_prefix_and_nothing_else() {
    let Deployed {
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
fn alarms_watch_this_table_and_this_queue_and_tell_the_topic() {
    let Deployed {
        table,
        prefix,
        found,
    } = deployed();
    let alarms = found["alarms"].as_array().expect("alarms");
    let topic = &found["outputs"]["AlarmTopicArn"];
    assert!(topic.is_string());
    let (table, queue) = (table.as_str(), format!("{prefix}--set-aside"));
    let mut seen = Vec::new();
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
        seen.push((alarm["MetricName"].as_str().expect("a name"), index));
    }
    seen.sort_unstable();
    assert_eq!(
        seen,
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
fn outputs_are_what_the_services_are_started_with() {
    let Deployed {
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
