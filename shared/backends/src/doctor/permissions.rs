//! What the credentials allow, tried by calls that cannot change anything.

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

/// A partition that no store has; nothing is ever put there.
const NOWHERE: &str = "doctor";
/// A condition that does not hold for an item that does not exist.
const NEVER: &str = "attribute_exists(#pk)";

/// Who needs an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    /// Services at work.
    ByServices,
    /// Only `dueline setup` and this look.
    BySetup,
    /// Services ask for it and go on without.
    ForSafety,
}

/// What an attempt says about the permission.
pub(super) fn judge(action: &str, needed: Needed, tried: Result<(), &Failure>) -> Finding {
    let Err(failure) = tried else {
        return Finding::ok(AREA, action, "allowed");
    };
    let words = &failure.message;
    match (failure.class, needed) {
        (Class::Denied, Needed::ByServices) => Finding::defect(
            AREA,
            action,
            format!("denied: {words}"),
            format!(
                "allow {action} to the role of these credentials; infra/ has the policies of each role"
            ),
        ),
        (Class::Denied, Needed::BySetup) => Finding::warning(
            AREA,
            action,
            format!("denied: {words}"),
            format!(
                "allow {action} where 'dueline setup' and 'dueline doctor' run; services at work do not need it"
            ),
        ),
        (Class::Denied, Needed::ForSafety) => Finding::warning(
            AREA,
            action,
            format!(
                "denied: {words}; services go on, but cannot tell a queue of another deployment from one of their own"
            ),
            format!(
                "allow {action} to the role of these credentials; infra/ has the policies of each role"
            ),
        ),
        // It came as far as the condition, which is behind the permission.
        (Class::ConditionFailed | Class::Cancelled, _) => Finding::ok(AREA, action, "allowed"),
        _ => Finding::unknown(AREA, action, format!("cannot be told: {words}")),
    }
}

/// Drops the answer of a call and classifies its error.
pub(super) fn tried<T, E>(
    result: Result<T, SdkError<E, aws_sdk_dynamodb::config::http::HttpResponse>>,
) -> Result<(), Failure>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    result.map(drop).map_err(|error| classify(&error))
}

fn unbuilt(error: BuildError) -> Failure {
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

/// What services do with the items of a table. Every write has a condition that cannot hold, or deletes what is not
/// there.
pub(super) async fn of_items(client: &Client, table: &str) -> Vec<Finding> {
    let services = |action, result: Result<(), Failure>| {
        judge(action, Needed::ByServices, result.as_ref().copied())
    };
    let get = client.get_item().table_name(table);
    let get = get
        .key(schema::PK, text(NOWHERE))
        .key(schema::SK, sort_key());
    let query = client.query().table_name(table).limit(1);
    let query = query
        .key_condition_expression("#pk = :pk")
        .expression_attribute_names("#pk", schema::PK)
        .expression_attribute_values(":pk", text(NOWHERE));
    let index = client.query().table_name(table).limit(1);
    let index = index
        .index_name(schema::DUE_INDEX)
        .key_condition_expression("#d = :d")
        .expression_attribute_names("#d", schema::DUE_KEY)
        .expression_attribute_values(":d", text(NOWHERE));
    let put = client.put_item().table_name(table);
    let put = put
        .item(schema::PK, text(NOWHERE))
        .item(schema::SK, sort_key())
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK);
    let update = client.update_item().table_name(table);
    let update = update
        .key(schema::PK, text(NOWHERE))
        .key(schema::SK, sort_key())
        .update_expression("SET #n = :n")
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK)
        .expression_attribute_names("#n", "n")
        .expression_attribute_values(":n", text("nothing"));
    let delete = client.delete_item().table_name(table);
    let delete = delete
        .key(schema::PK, text(NOWHERE))
        .key(schema::SK, sort_key())
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK);
    vec![
        services("dynamodb:GetItem", tried(Box::pin(get.send()).await)),
        services(
            "dynamodb:BatchGetItem",
            Box::pin(batch_get(client, table)).await,
        ),
        services("dynamodb:Query", tried(Box::pin(query.send()).await)),
        services(
            "dynamodb:Query on the index",
            tried(Box::pin(index.send()).await),
        ),
        services("dynamodb:PutItem", tried(Box::pin(put.send()).await)),
        services("dynamodb:UpdateItem", tried(Box::pin(update.send()).await)),
        services("dynamodb:DeleteItem", tried(Box::pin(delete.send()).await)),
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

/// What only setup asks a table for.
pub(super) async fn of_settings(client: &Client, table: &str) -> Vec<Finding> {
    let setup = |action, result: Result<(), Failure>| {
        judge(action, Needed::BySetup, result.as_ref().copied())
    };
    let ttl = client.describe_time_to_live().table_name(table);
    let backups = client.describe_continuous_backups().table_name(table);
    vec![
        setup(
            "dynamodb:DescribeTimeToLive",
            tried(Box::pin(ttl.send()).await),
        ),
        setup(
            "dynamodb:DescribeContinuousBackups",
            tried(Box::pin(backups.send()).await),
        ),
    ]
}

async fn batch_get(client: &Client, table: &str) -> Result<(), Failure> {
    let key = [(schema::PK, text(NOWHERE)), (schema::SK, sort_key())];
    let key = key.map(|(name, value)| (name.to_owned(), value)).into();
    let keys = KeysAndAttributes::builder()
        .keys(key)
        .build()
        .map_err(unbuilt)?;
    tried(
        client
            .batch_get_item()
            .request_items(table, keys)
            .send()
            .await,
    )
}

/// It knows no conditions: what is deleted does not exist.
async fn batch_write(client: &Client, table: &str) -> Result<(), Failure> {
    let delete = DeleteRequest::builder()
        .key(schema::PK, text(NOWHERE))
        .key(schema::SK, sort_key());
    let delete = delete.build().map_err(unbuilt)?;
    let writes = vec![WriteRequest::builder().delete_request(delete).build()];
    tried(
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
        .key(schema::PK, text(NOWHERE))
        .key(schema::SK, sort_key())
        .condition_expression(NEVER)
        .expression_attribute_names("#pk", schema::PK);
    let check = check.build().map_err(unbuilt)?;
    let item = TransactWriteItem::builder().condition_check(check).build();
    tried(
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

    fn state(class: Class, needed: Needed) -> State {
        let message = "words".into();
        judge("x:Y", needed, Err(&Failure { class, message })).state
    }

    #[test]
    fn g_18_a_denied_action_is_a_defect_where_services_need_it() {
        assert_eq!(state(Class::Denied, Needed::ByServices), State::Defect);
        assert_eq!(state(Class::Denied, Needed::BySetup), State::Warning);
        assert_eq!(state(Class::Denied, Needed::ForSafety), State::Warning);
        for needed in [Needed::ByServices, Needed::BySetup, Needed::ForSafety] {
            assert_eq!(judge("x:Y", needed, Ok(())).state, State::Ok);
            assert_eq!(state(Class::ConditionFailed, needed), State::Ok);
            assert_eq!(state(Class::Cancelled, needed), State::Ok);
            for class in [
                Class::Throttled,
                Class::Unknown,
                Class::Invalid,
                Class::Missing,
            ] {
                assert_eq!(state(class, needed), State::Unknown, "{class:?}");
            }
        }
    }
}
