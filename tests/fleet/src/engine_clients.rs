//! Direct clients of the engines, to inspect and to break the resources of a fleet.

use std::{collections::BTreeMap, time::Duration};

use aws_sdk_dynamodb::{
    config::{BehaviorVersion, Credentials, Region, timeout::TimeoutConfig},
    primitives::Blob,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
        ScalarAttributeType,
    },
};
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY};

/// A call that takes longer has failed.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Direct clients of both engines.
#[derive(Clone, Debug)]
pub struct EngineClients {
    dynamodb: aws_sdk_dynamodb::Client,
    sqs: aws_sdk_sqs::Client,
    table: String,
    prefix: String,
}

fn credentials() -> Credentials {
    Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "tests")
}

fn timeouts() -> TimeoutConfig {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(CALL_MAX);
    timeouts.build()
}

impl EngineClients {
    pub(crate) fn new(dynamodb: &str, sqs: &str, table: &str, prefix: &str) -> Self {
        let http = || aws_smithy_http_client::Builder::new().build_http();
        let dynamodb = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(dynamodb)
            .region(Region::new(REGION))
            .credentials_provider(credentials())
            .http_client(http())
            .timeout_config(timeouts())
            .build();
        let sqs = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(sqs)
            .region(Region::new(REGION))
            .credentials_provider(credentials())
            .http_client(http())
            .timeout_config(timeouts())
            .build();
        Self {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb),
            sqs: aws_sdk_sqs::Client::from_conf(sqs),
            table: table.to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    /// The names of all queues with the prefix.
    pub async fn queues(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut from = None;
        loop {
            let page = self.sqs.list_queues().queue_name_prefix(&self.prefix);
            let page = page.max_results(1_000).set_next_token(from).send().await;
            let page = page.expect("a list of queues");
            let urls = page.queue_urls().iter();
            names.extend(urls.map(|url| url.rsplit('/').next().unwrap_or_default().to_owned()));
            from = page.next_token().map(str::to_owned);
            if from.is_none() {
                names.sort();
                return names;
            }
        }
    }

    /// The name of a job's queue.
    pub fn queue(&self, job: &str) -> String {
        format!("{}-{job}", self.prefix)
    }

    async fn url(&self, queue: &str) -> String {
        let answer = self.sqs.get_queue_url().queue_name(queue).send().await;
        let answer = answer.expect("a queue of that name");
        answer.queue_url().expect("a queue has a URL").to_owned()
    }

    /// The tags of a queue.
    pub async fn tags(&self, queue: &str) -> BTreeMap<String, String> {
        let url = self.url(queue).await;
        let tags = self.sqs.list_queue_tags().queue_url(url).send().await;
        let tags = tags.expect("tags").tags.unwrap_or_default();
        tags.into_iter().collect()
    }

    /// Deletes the queue of a job without the fleet.
    pub async fn delete_queue(&self, job: &str) {
        let url = self.url(&self.queue(job)).await;
        let deleted = self.sqs.delete_queue().queue_url(url).send().await;
        deleted.expect("a queue that could be deleted");
    }

    /// Approximate numbers of a job's visible messages and of its messages in flight.
    pub async fn messages(&self, job: &str) -> (u64, u64) {
        use QueueAttributeName::{
            ApproximateNumberOfMessages as Visible,
            ApproximateNumberOfMessagesNotVisible as InFlight,
        };
        let url = self.url(&self.queue(job)).await;
        let call = self.sqs.get_queue_attributes().queue_url(url);
        let call = call.attribute_names(Visible).attribute_names(InFlight);
        let answer = call.send().await.expect("attributes of a queue");
        let count = |name: &QueueAttributeName| {
            let attributes = answer.attributes().expect("the attributes");
            attributes[name].parse().expect("a number")
        };
        (count(&Visible), count(&InFlight))
    }

    /// The receive count of a job's next message, including this receive.
    pub async fn receives(&self, job: &str) -> u32 {
        let url = self.url(&self.queue(job)).await;
        let call = self
            .sqs
            .receive_message()
            .queue_url(url)
            .visibility_timeout(0);
        let call = call
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount);
        let answer = call.send().await.expect("messages");
        let message = answer.messages().first().expect("a message");
        let attributes = message.attributes().expect("attributes of a message");
        let count = &attributes[&MessageSystemAttributeName::ApproximateReceiveCount];
        count.parse().expect("a number")
    }

    /// Creates the table without its index.
    pub async fn create_table_without_index(&self) {
        let attribute = |name: &str, kind| {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            attribute
                .attribute_type(kind)
                .build()
                .expect("an attribute")
        };
        let key = |name: &str, kind| {
            let key = KeySchemaElement::builder().attribute_name(name);
            key.key_type(kind).build().expect("a key")
        };
        let created = self.dynamodb.create_table().table_name(&self.table);
        let created = created
            .attribute_definitions(attribute("pk", ScalarAttributeType::S))
            .attribute_definitions(attribute("sk", ScalarAttributeType::B))
            .key_schema(key("pk", KeyType::Hash))
            .key_schema(key("sk", KeyType::Range))
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await;
        created.expect("a table");
    }

    /// Writes the schema version of a newer program into the table.
    pub async fn write_newer_version(&self) {
        let changed = self.dynamodb.update_item().table_name(&self.table);
        let changed = changed
            .key("pk", AttributeValue::S("meta".into()))
            .key("sk", AttributeValue::B(Blob::new(b"schema")))
            .update_expression("SET #v = :v")
            .expression_attribute_names("#v", "v")
            .expression_attribute_values(":v", AttributeValue::N("999".into()))
            .send()
            .await;
        changed.expect("a write");
    }
}
