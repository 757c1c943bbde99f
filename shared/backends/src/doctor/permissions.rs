//! Determines the permissions of the credentials by calls that cannot change anything.

use aws_sdk_dynamodb::{
    Client,
    error::{BuildError, ProvideErrorMetadata, SdkError},
    primitives::Blob,
    types::{
        AttributeValue, ConditionCheck, DeleteRequest, KeysAndAttributes, TransactWriteItem,
        WriteRequest,
    },
};
use dueline_aws::{Class, Failure, classify};
use dueline_store_dynamodb::schema;

use super::Finding;

pub(super) const AREA: &str = "permissions";

/// A partition key that no store uses.
const UNUSED_PARTITION: &str = "doctor";
/// A condition that fails for an item that does not exist.
const NEVER: &str = "attribute_exists(#pk)";

/// What requires an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredBy {
    /// Services require it at run time.
    Services,
    /// Only `dueline setup` and `dueline doctor` require it.
    Setup,
    /// Services use it as a safeguard and work without it.
    Safeguard,
}

/// The finding about a permission, from the result of a call that needs it.
pub(super) fn permission_finding(
    action: &str,
    required_by: RequiredBy,
    outcome: Result<(), &Failure>,
) -> Finding {
    let Err(failure) = outcome else {
        return Finding::ok(AREA, action, "allowed");
    };
    let message = &failure.message;
    match (failure.class, required_by) {
        (Class::Denied, RequiredBy::Services) => Finding::defect(
            AREA,
            action,
            format!("denied: {message}"),
            format!(
                "allow {action} to the role of these credentials; infra/ has the policies of each role"
            ),
        ),
        (Class::Denied, RequiredBy::Setup) => Finding::warning(
            AREA,
            action,
            format!("denied: {message}"),
            format!(
                "allow {action} where 'dueline setup' and 'dueline doctor' run; running services do not need it"
            ),
        ),
        (Class::Denied, RequiredBy::Safeguard) => Finding::warning(
            AREA,
            action,
            format!(
                "denied: {message}; services work, but cannot distinguish queues of another deployment from their own"
            ),
            format!(
                "allow {action} to the role of these credentials; infra/ has the policies of each role"
            ),
        ),
        // DynamoDB evaluates the condition only after it has checked the permission.
        (Class::ConditionFailed | Class::Cancelled, _) => Finding::ok(AREA, action, "allowed"),
        _ => Finding::unknown(AREA, action, format!("not determined: {message}")),
    }
}

/// Drops the response of a call and classifies its error.
pub(super) fn outcome<T, E>(
    result: Result<T, SdkError<E, aws_sdk_dynamodb::config::http::HttpResponse>>,
) -> Result<(), Failure>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    result.map(drop).map_err(|error| classify(&error))
}

fn build_failure(error: BuildError) -> Failure {
    Failure {
        class: Class::Invalid,
        message: error.to_string().into(),
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn sort_key() -> AttributeValue {
    AttributeValue::B(Blob::new("nothing"))
}

/// Tries the actions of services on the items of a table. Every write has a condition that cannot hold, or deletes an
/// item that does not exist.
pub(super) async fn of_items(client: &Client, table: &str) -> Vec<Finding> {
    let services = |action, result: Result<(), Failure>| {
        permission_finding(action, RequiredBy::Services, result.as_ref().copied())
    };
    let get = client.get_item().table_name(table);
    let get = get
        .key(schema::PK, text(UNUSED_PARTITION))
        .key(schema::SK, sort_key());
    let query = client.query().table_name(table).limit(1);
    let query = query
        .key_condition_expression("#pk = :pk")
        .expression_attribute_names("#pk", schema::PK)
        .expression_attribute_values(":pk", text(UNUSED_PARTITION));
    let index = client.query().table_name(table).limit(1);
    let index = index
        .index_name(schema::DUE_INDEX)
        .key_condition_expression("#d = :d")
        .expression_attribute_names("#d", schema::DUE_KEY)
        .expression_attribute_values(":d", text(UNUSED_PARTITION));
    let put = client.put_item().table_name(table);
    let put = put
        .item(schema::PK, text(UNUSED_PARTITION))
        .item(schema::SK, sort_key())
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK);
    let update = client.update_item().table_name(table);
    let update = update
        .key(schema::PK, text(UNUSED_PARTITION))
        .key(schema::SK, sort_key())
        .update_expression("SET #n = :n")
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK)
        .expression_attribute_names("#n", "n")
        .expression_attribute_values(":n", text("nothing"));
    let delete = client.delete_item().table_name(table);
    let delete = delete
        .key(schema::PK, text(UNUSED_PARTITION))
        .key(schema::SK, sort_key())
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK);
    vec![
        services("dynamodb:GetItem", outcome(Box::pin(get.send()).await)),
        services(
            "dynamodb:BatchGetItem",
            Box::pin(batch_get(client, table)).await,
        ),
        services("dynamodb:Query", outcome(Box::pin(query.send()).await)),
        services(
            "dynamodb:Query on the index",
            outcome(Box::pin(index.send()).await),
        ),
        services("dynamodb:PutItem", outcome(Box::pin(put.send()).await)),
        services(
            "dynamodb:UpdateItem",
            outcome(Box::pin(update.send()).await),
        ),
        services(
            "dynamodb:DeleteItem",
            outcome(Box::pin(delete.send()).await),
        ),
        services(
            "dynamodb:BatchWriteItem",
            Box::pin(batch_write(client, table)).await,
        ),
        services(
            "dynamodb:ConditionCheckItem",
            Box::pin(check(client, table)).await,
        ),
    ]
}

/// Tries the actions that only setup needs on a table.
pub(super) async fn of_settings(client: &Client, table: &str) -> Vec<Finding> {
    let setup = |action, result: Result<(), Failure>| {
        permission_finding(action, RequiredBy::Setup, result.as_ref().copied())
    };
    let ttl = client.describe_time_to_live().table_name(table);
    let backups = client.describe_continuous_backups().table_name(table);
    vec![
        setup(
            "dynamodb:DescribeTimeToLive",
            outcome(Box::pin(ttl.send()).await),
        ),
        setup(
            "dynamodb:DescribeContinuousBackups",
            outcome(Box::pin(backups.send()).await),
        ),
    ]
}

async fn batch_get(client: &Client, table: &str) -> Result<(), Failure> {
    let key = [
        (schema::PK, text(UNUSED_PARTITION)),
        (schema::SK, sort_key()),
    ];
    let key = key.map(|(name, value)| (name.to_owned(), value)).into();
    let keys = KeysAndAttributes::builder()
        .keys(key)
        .build()
        .map_err(build_failure)?;
    outcome(
        client
            .batch_get_item()
            .request_items(table, keys)
            .send()
            .await,
    )
}

/// `BatchWriteItem` has no conditions, so the item that it deletes does not exist.
async fn batch_write(client: &Client, table: &str) -> Result<(), Failure> {
    let delete = DeleteRequest::builder()
        .key(schema::PK, text(UNUSED_PARTITION))
        .key(schema::SK, sort_key());
    let delete = delete.build().map_err(build_failure)?;
    let writes = vec![WriteRequest::builder().delete_request(delete).build()];
    outcome(
        client
            .batch_write_item()
            .request_items(table, writes)
            .send()
            .await,
    )
}

async fn check(client: &Client, table: &str) -> Result<(), Failure> {
    let check = ConditionCheck::builder()
        .table_name(table)
        .key(schema::PK, text(UNUSED_PARTITION))
        .key(schema::SK, sort_key())
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK);
    let check = check.build().map_err(build_failure)?;
    let item = TransactWriteItem::builder().condition_check(check).build();
    outcome(
        client
            .transact_write_items()
            .transact_items(item)
            .send()
            .await,
    )
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    fn state(class: Class, required_by: RequiredBy) -> State {
        let message = "message".into();
        permission_finding("x:Y", required_by, Err(&Failure { class, message })).state
    }

    #[test]
    fn g_18_a_denied_action_is_a_defect_if_services_require_it() {
        assert_eq!(state(Class::Denied, RequiredBy::Services), State::Defect);
        assert_eq!(state(Class::Denied, RequiredBy::Setup), State::Warning);
        assert_eq!(state(Class::Denied, RequiredBy::Safeguard), State::Warning);
        for required_by in [
            RequiredBy::Services,
            RequiredBy::Setup,
            RequiredBy::Safeguard,
        ] {
            assert_eq!(
                permission_finding("x:Y", required_by, Ok(())).state,
                State::Ok
            );
            assert_eq!(state(Class::ConditionFailed, required_by), State::Ok);
            assert_eq!(state(Class::Cancelled, required_by), State::Ok);
            for class in [
                Class::Throttled,
                Class::Unknown,
                Class::Invalid,
                Class::Missing,
            ] {
                assert_eq!(state(class, required_by), State::Unknown, "{class:?}");
            }
        }
    }
}
