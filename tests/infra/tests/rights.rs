//! Each role may do exactly what is listed here, and what the code of the adapters calls.

use std::collections::{BTreeMap, BTreeSet};

use dueline_tests_infra::{template, under};
use serde_json::{Value, json};

/// The calls of a role: actions on the table, whether it reads the due index, and actions on queues of the prefix.
struct RoleCalls {
    role: &'static str,
    table: &'static [&'static str],
    index: bool,
    queues: &'static [&'static str],
}

const ROLE_CALLS: [RoleCalls; 6] = [
    RoleCalls {
        role: "FrontendRole",
        table: &[
            "BatchGetItem",
            "BatchWriteItem",
            "ConditionCheckItem",
            "DeleteItem",
            "DescribeTable",
            "GetItem",
            "PutItem",
            "Query",
            "UpdateItem",
        ],
        index: true,
        queues: &[
            "CreateQueue",
            "DeleteQueue",
            "GetQueueAttributes",
            "GetQueueUrl",
            "ListQueueTags",
            "SendMessage",
            "TagQueue",
        ],
    },
    RoleCalls {
        role: "ConsumerRole",
        table: &[
            "BatchGetItem",
            "BatchWriteItem",
            "DeleteItem",
            "DescribeTable",
            "GetItem",
            "PutItem",
            "Query",
            "UpdateItem",
        ],
        index: true,
        queues: &[
            "CreateQueue",
            "GetQueueAttributes",
            "GetQueueUrl",
            "ListQueueTags",
            "SendMessage",
            "TagQueue",
        ],
    },
    RoleCalls {
        role: "StatusControllerRole",
        table: &[
            "BatchGetItem",
            "BatchWriteItem",
            "DeleteItem",
            "DescribeTable",
            "GetItem",
            "PutItem",
            "Query",
            "UpdateItem",
        ],
        index: true,
        queues: &["GetQueueUrl", "ListQueueTags", "SendMessage"],
    },
    RoleCalls {
        role: "ControllerRole",
        table: &[],
        index: false,
        queues: &[
            "ChangeMessageVisibility",
            "DeleteMessage",
            "GetQueueAttributes",
            "GetQueueUrl",
            "ListQueueTags",
            "ReceiveMessage",
            "SendMessage",
        ],
    },
    RoleCalls {
        role: "ExecutorRole",
        table: &[],
        index: false,
        queues: &[],
    },
    RoleCalls {
        role: "SetupRole",
        table: &[
            "CreateTable",
            "DeleteTable",
            "DescribeContinuousBackups",
            "DescribeTable",
            "DescribeTimeToLive",
            "GetItem",
            "PutItem",
            "Query",
            "UpdateContinuousBackups",
            "UpdateItem",
            "UpdateTable",
            "UpdateTimeToLive",
        ],
        index: true,
        queues: &[
            "CreateQueue",
            "DeleteQueue",
            "GetQueueAttributes",
            "GetQueueUrl",
            "ListQueueTags",
            "SetQueueAttributes",
            "TagQueue",
        ],
    },
];

/// The actions that a method of the SDK's client needs. A batch of messages needs the action for a single message; a
/// transaction needs those of its parts.
const REQUIRED_ACTIONS: &[(&str, &[&str])] = &[
    ("batch_get_item", &["BatchGetItem"]),
    ("batch_write_item", &["BatchWriteItem"]),
    ("change_message_visibility", &["ChangeMessageVisibility"]),
    (
        "change_message_visibility_batch",
        &["ChangeMessageVisibility"],
    ),
    ("create_queue", &["CreateQueue"]),
    ("create_table", &["CreateTable"]),
    ("delete_item", &["DeleteItem"]),
    ("delete_message", &["DeleteMessage"]),
    ("delete_message_batch", &["DeleteMessage"]),
    ("delete_queue", &["DeleteQueue"]),
    ("delete_table", &["DeleteTable"]),
    (
        "describe_continuous_backups",
        &["DescribeContinuousBackups"],
    ),
    ("describe_table", &["DescribeTable"]),
    ("describe_time_to_live", &["DescribeTimeToLive"]),
    ("get_item", &["GetItem"]),
    ("get_queue_attributes", &["GetQueueAttributes"]),
    ("get_queue_url", &["GetQueueUrl"]),
    ("list_queue_tags", &["ListQueueTags"]),
    ("list_queues", &["ListQueues"]),
    ("list_tags_of_resource", &["ListTagsOfResource"]),
    ("put_item", &["PutItem"]),
    ("query", &["Query"]),
    ("receive_message", &["ReceiveMessage"]),
    ("send_message", &["SendMessage"]),
    ("send_message_batch", &["SendMessage"]),
    ("set_queue_attributes", &["SetQueueAttributes"]),
    ("tag_queue", &["TagQueue"]),
    ("tag_resource", &["TagResource"]),
    (
        "transact_write_items",
        &["ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem"],
    ),
    ("update_continuous_backups", &["UpdateContinuousBackups"]),
    ("update_item", &["UpdateItem"]),
    ("update_table", &["UpdateTable"]),
    ("update_time_to_live", &["UpdateTimeToLive"]),
];

fn list(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().map(|one| one.as_str().expect("text")).collect(),
        other => panic!("{other} is not a list of strings"),
    }
}

fn resources_of(kind: &str) -> BTreeMap<&'static str, &'static Value> {
    template()["Resources"]
        .as_object()
        .expect("resources")
        .iter()
        .filter(|(_, resource)| resource["Type"] == kind)
        .map(|(name, resource)| (name.as_str(), &resource["Properties"]))
        .collect()
}

/// The statements of a role's inline policies, including conditional ones.
fn statements(role: &'static Value) -> Vec<&'static Value> {
    let policies = role["Policies"].as_array().map_or(&[][..], Vec::as_slice);
    let all = policies.iter().flat_map(|policy| {
        policy["PolicyDocument"]["Statement"]
            .as_array()
            .expect("statements")
    });
    all.map(|statement| {
        statement
            .get("Fn::If")
            .map_or(statement, |choice| &choice[1])
    })
    .collect()
}

#[test]
fn each_role_may_do_what_it_calls_and_nothing_else() {
    let roles = resources_of("AWS::IAM::Role");
    let queues = json!({ "Fn::Sub":
        "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:${QueuePrefix}-*" });
    for calls in &ROLE_CALLS {
        let found = statements(roles[calls.role]);
        let mut unchecked: BTreeMap<&str, &Value> = found
            .iter()
            .map(|statement| (statement["Sid"].as_str().expect("a name"), *statement))
            .collect();
        assert_eq!(
            unchecked.len(),
            found.len(),
            "{} repeats a name",
            calls.role
        );
        let mut expect = |sid: &str, service: &str, actions: &[&str], resource: Value| {
            let statement = unchecked.remove(sid);
            if actions.is_empty() {
                assert!(statement.is_none(), "{} has {sid}", calls.role);
                return;
            }
            let statement = statement.unwrap_or_else(|| panic!("{} lacks {sid}", calls.role));
            let expected: Vec<_> = actions.iter().map(|a| format!("{service}:{a}")).collect();
            assert_eq!(list(&statement["Action"]), expected, "{} {sid}", calls.role);
            assert_eq!(statement["Effect"], "Allow");
            assert_eq!(statement["Resource"], resource, "{} {sid}", calls.role);
        };
        let index: &[&str] = if calls.index { &["Query"] } else { &[] };
        expect(
            "Table",
            "dynamodb",
            calls.table,
            json!({ "Fn::GetAtt": ["Table", "Arn"] }),
        );
        expect(
            "Index",
            "dynamodb",
            index,
            json!({ "Fn::Sub": "${Table.Arn}/index/due" }),
        );
        expect("Queues", "sqs", calls.queues, queues.clone());
        if let Some(lists) = unchecked
            .remove("List")
            .filter(|_| calls.role == "SetupRole")
        {
            assert_eq!(lists["Action"], "sqs:ListQueues");
        }
        assert!(
            unchecked.is_empty(),
            "{} may also {unchecked:?}",
            calls.role
        );
    }
    let known: BTreeSet<_> = ROLE_CALLS
        .iter()
        .map(|calls| calls.role)
        .chain(["ExecutionRole"])
        .collect();
    assert_eq!(roles.keys().copied().collect::<BTreeSet<_>>(), known);
}

#[test]
fn no_role_is_allowed_all_actions_or_all_resources() {
    let mut documents: Vec<&Value> = Vec::new();
    for role in resources_of("AWS::IAM::Role").values() {
        documents.extend(statements(role));
    }
    for policy in resources_of("AWS::IAM::ManagedPolicy").values() {
        documents.extend(
            policy["PolicyDocument"]["Statement"]
                .as_array()
                .expect("statements"),
        );
    }
    for statement in documents {
        if statement["Effect"] == "Deny" {
            continue;
        }
        for action in list(&statement["Action"]) {
            assert!(!action.contains('*'), "{action}");
            // Actions that AWS grants only for all resources.
            let for_all = ["ecr:GetAuthorizationToken", "sqs:ListQueues"].contains(&action);
            assert_eq!(statement["Resource"] == "*", for_all, "{action}");
        }
    }
}

#[test]
fn every_role_with_permissions_is_denied_access_without_tls() {
    let tls = json!({ "Bool": { "aws:SecureTransport": "false" } });
    let policy = resources_of("AWS::IAM::ManagedPolicy")["TlsPolicy"];
    let statement = &policy["PolicyDocument"]["Statement"][0];
    assert_eq!(statement["Effect"], "Deny");
    assert_eq!(statement["Condition"], tls);
    assert_eq!(list(&statement["Action"]), ["dynamodb:*", "sqs:*"]);
    let roles = resources_of("AWS::IAM::Role");
    for calls in ROLE_CALLS.iter().filter(|calls| !calls.queues.is_empty()) {
        let attached = roles[calls.role]["ManagedPolicyArns"]
            .as_array()
            .expect("policies");
        assert!(
            attached.contains(&json!({ "Ref": "TlsPolicy" })),
            "{}",
            calls.role
        );
    }
    let queue = resources_of("AWS::SQS::QueuePolicy")["QuarantineQueuePolicy"];
    assert_eq!(queue["PolicyDocument"]["Statement"][0]["Condition"], tls);
}

#[test]
fn roles_are_assumed_only_by_services_of_this_account() {
    for (name, role) in resources_of("AWS::IAM::Role") {
        let trust = role["AssumeRolePolicyDocument"]["Statement"]
            .as_array()
            .expect("statements");
        for statement in trust {
            let of_account =
                json!({ "StringEquals": { "aws:SourceAccount": { "Ref": "AWS::AccountId" } } });
            assert_eq!(statement["Condition"], of_account, "{name}");
            for service in list(&statement["Principal"]["Service"]) {
                assert!(
                    ["ecs-tasks.amazonaws.com", "pods.eks.amazonaws.com"].contains(&service),
                    "{name}: {service}"
                );
            }
        }
    }
}

/// Every method that the adapters call on a client of the SDK, which is recognised by the name `client`.
fn called(folders: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in folders {
        for path in under(folder, "rs") {
            let source = std::fs::read_to_string(&path).expect("a source file");
            let dense: String = source.split_whitespace().collect();
            for rest in dense.split("client.").skip(1) {
                let name: String = rest
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                    .collect();
                // Methods that read or convert the client are not calls.
                let is_call = !["config", "into"].contains(&name.as_str());
                if rest[name.len()..].starts_with("()") && is_call {
                    found.insert(name);
                }
            }
        }
    }
    found
}

#[test]
fn every_call_of_the_code_is_granted_to_a_role_and_every_granted_action_is_called() {
    let needed: BTreeMap<_, _> = REQUIRED_ACTIONS.iter().copied().collect();
    let methods = called(&["shared/store-dynamodb/src", "shared/queue-sqs/src"]);
    assert!(methods.len() > 10, "{methods:?}");
    let mut required = BTreeSet::new();
    for method in &methods {
        let actions = needed
            .get(method.as_str())
            .unwrap_or_else(|| panic!("add the action that {method} needs to REQUIRED_ACTIONS"));
        required.extend(actions.iter().copied());
    }
    let granted: BTreeSet<_> = ROLE_CALLS
        .iter()
        .flat_map(|calls| calls.table.iter().chain(calls.queues))
        .copied()
        .chain(["ListQueues"])
        .collect();
    let missing: Vec<_> = required.difference(&granted).collect();
    assert!(
        missing.is_empty(),
        "called but granted to no role: {missing:?}"
    );
    let unused: Vec<_> = granted.difference(&required).collect();
    assert!(unused.is_empty(), "granted but never called: {unused:?}");
}
