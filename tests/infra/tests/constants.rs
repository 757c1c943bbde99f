//! Names in the template equal those in the code.

use dueline_queue_sqs::{DEFAULT_PREFIX, QUARANTINE_SUFFIX};
use dueline_store_dynamodb::schema::{DUE_HINT, DUE_INDEX, DUE_KEY, PK, SK, TTL};
use dueline_tests_infra::template;
use serde_json::json;

#[test]
fn the_table_of_the_template_is_the_table_of_the_code() {
    let table = &template()["Resources"]["Table"]["Properties"];
    assert_eq!(
        table["AttributeDefinitions"],
        json!([
            { "AttributeName": PK, "AttributeType": "S" },
            { "AttributeName": SK, "AttributeType": "B" },
            { "AttributeName": DUE_KEY, "AttributeType": "S" },
            { "AttributeName": DUE_HINT, "AttributeType": "N" },
        ])
    );
    let keys = |hash, range| {
        json!([
            { "AttributeName": hash, "KeyType": "HASH" },
            { "AttributeName": range, "KeyType": "RANGE" },
        ])
    };
    assert_eq!(table["KeySchema"], keys(PK, SK));
    let index = &table["GlobalSecondaryIndexes"][0];
    assert_eq!(index["IndexName"], DUE_INDEX);
    assert_eq!(index["KeySchema"], keys(DUE_KEY, DUE_HINT));
    assert_eq!(
        index["Projection"],
        json!({ "ProjectionType": "KEYS_ONLY" })
    );
    assert_eq!(
        table["GlobalSecondaryIndexes"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(table["TimeToLiveSpecification"]["AttributeName"], TTL);
    assert_eq!(table["BillingMode"], "PAY_PER_REQUEST");
}

#[test]
fn queues_of_the_template_are_named_as_the_code_names_them() {
    let parameters = &template()["Parameters"];
    assert_eq!(parameters["QueuePrefix"]["Default"], DEFAULT_PREFIX);
    assert_eq!(
        template()["Resources"]["QuarantineQueue"]["Properties"]["QueueName"],
        json!({ "Fn::Sub": format!("${{QueuePrefix}}{QUARANTINE_SUFFIX}") })
    );
    // Roles may access queues by the pattern "prefix, hyphen, anything", which must match this queue, too.
    assert!(QUARANTINE_SUFFIX.starts_with('-'));
}
