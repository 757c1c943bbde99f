//! Clients of the AWS SDK for engines.

use std::time::Duration;

use aws_sdk_dynamodb::{
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig, timeout::TimeoutConfig},
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
        ScalarAttributeType,
    },
};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY};

/// The timeout of a call.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(10);

fn credentials() -> Credentials {
    Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "tests")
}

fn timeouts(call_max: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .operation_attempt_timeout(call_max)
        .build()
}

/// A DynamoDB client without retries, whose calls time out after `call_max`.
pub(crate) fn dynamodb(url: &str, call_max: Duration) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(url)
        .region(Region::new(REGION))
        .credentials_provider(credentials())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(call_max))
        .build();
    aws_sdk_dynamodb::Client::from_conf(config)
}

/// An SQS client without retries.
pub(crate) fn sqs(url: &str) -> aws_sdk_sqs::Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(url)
        .region(Region::new(REGION))
        .credentials_provider(credentials())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(CALL_MAX))
        .build();
    aws_sdk_sqs::Client::from_conf(config)
}

/// Creates a table with the string key `pk`.
pub(crate) async fn create_table(client: &aws_sdk_dynamodb::Client, name: &str) {
    let key = KeySchemaElement::builder()
        .attribute_name("pk")
        .key_type(KeyType::Hash)
        .build()
        .unwrap();
    let attribute = AttributeDefinition::builder()
        .attribute_name("pk")
        .attribute_type(ScalarAttributeType::S)
        .build()
        .unwrap();
    client
        .create_table()
        .table_name(name)
        .key_schema(key)
        .attribute_definitions(attribute)
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();
}

/// Writes an item on the condition that it does not exist. Returns whether the condition held.
pub(crate) async fn put_new(client: &aws_sdk_dynamodb::Client, table: &str, key: &str) -> bool {
    let put = client
        .put_item()
        .table_name(table)
        .item("pk", AttributeValue::S(key.to_owned()))
        .condition_expression("attribute_not_exists(pk)")
        .send()
        .await;
    match put {
        Ok(_) => true,
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
        {
            false
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Sends a text through a new queue and receives it.
pub(crate) async fn send_and_receive(client: &aws_sdk_sqs::Client, queue: &str, text: &str) {
    let created = client.create_queue().queue_name(queue).send().await;
    let queue_url = created.unwrap().queue_url.expect("a queue has an address");
    let send = client.send_message().queue_url(&queue_url);
    send.message_body(text).send().await.unwrap();
    let receive = client.receive_message().queue_url(&queue_url);
    let received = receive.wait_time_seconds(5).send().await.unwrap();
    let bodies: Vec<_> = received
        .messages()
        .iter()
        .filter_map(|message| message.body())
        .collect();
    assert_eq!(bodies, [text]);
}
