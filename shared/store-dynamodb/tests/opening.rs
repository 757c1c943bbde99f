//! Errors for tables that cannot be used, and the setup of tables.

mod kit;

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
        ScalarAttributeType as Kind,
    },
};
use dueline_aws::{Meter, SetupError};
use dueline_store_dynamodb::{
    DynamoOptions, DynamoStore, OpenError,
    setup::{self, SetupStep, TableSpec, TableState},
};
use kit::{Fault, FaultyConnection};

/// The error of an open that must fail.
async fn refused(options: DynamoOptions) -> OpenError {
    let opened = DynamoStore::open(options, Meter::default()).await;
    opened.map(|_| ()).expect_err("this table cannot be used")
}

fn spec(table: &str) -> TableSpec {
    TableSpec {
        table: table.into(),
        slots: 8,
        backups: true,
    }
}

async fn set_up(table: &str) -> Vec<SetupStep> {
    let setup_client = kit::setup_client().await;
    let found = setup_client.inspect(table).await.expect("an answer");
    let steps = setup::plan(&found, &spec(table));
    setup_client.execute(table, &steps).await.expect("a table");
    steps
}

/// Creates a table with a key, without index and meta item.
async fn create_bare(client: &Client, table: &str, names: [&str; 2], kinds: [Kind; 2]) {
    let mut call = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest);
    for ((name, kind), role) in names
        .into_iter()
        .zip(kinds)
        .zip([KeyType::Hash, KeyType::Range])
    {
        let attribute = AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(kind);
        let element = KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(role);
        call = call.attribute_definitions(attribute.build().unwrap());
        call = call.key_schema(element.build().unwrap());
    }
    call.send().await.expect("a table");
}

async fn put_meta(client: &Client, table: &str, app: &str, version: &str) {
    let sk = AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new("schema"));
    let call = client.put_item().table_name(table);
    let call = call
        .item("pk", AttributeValue::S("meta".into()))
        .item("sk", sk)
        .item("app", AttributeValue::S(app.into()))
        .item("v", AttributeValue::N(version.into()))
        .item("slots", AttributeValue::N("8".into()));
    call.send().await.expect("an item");
}

fn options(table: &str, endpoint: &str) -> DynamoOptions {
    DynamoOptions {
        aws: kit::aws(endpoint),
        ..DynamoOptions::of(table)
    }
}

#[tokio::test]
async fn f_141_a_missing_table_is_reported_with_its_endpoint_and_the_command_that_creates_it() {
    let endpoint = kit::endpoint().await;
    let error = refused(options("nowhere", &endpoint)).await;
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("nowhere") && text.contains(&endpoint) && text.contains("dueline setup"),
        "{text}"
    );
}

#[tokio::test]
async fn f_141_a_table_with_another_key_is_refused() {
    let (client, table) = (kit::client().await, dueline_tests_engines::unique("key"));
    create_bare(&client, &table, ["id", "sk"], [Kind::S, Kind::B]).await;
    let error = refused(options(&table, &kit::endpoint().await)).await;
    assert!(
        matches!(&error, OpenError::ForeignKey { found, .. } if found == "id (S), sk (B)"),
        "{error:?}"
    );
    let found = kit::setup_client().await.inspect(&table).await.unwrap();
    let steps = setup::plan(&found, &spec(&table));
    assert!(matches!(&steps[..], [SetupStep::Foreign(_)]), "{steps:?}");
    let executed = kit::setup_client().await.execute(&table, &steps).await;
    assert!(matches!(executed, Err(OpenError::Refused { .. })));
    let removed = kit::setup_client().await.remove(&table).await;
    assert!(
        matches!(removed, Err(OpenError::ForeignKey { .. })),
        "{removed:?}"
    );
    let found = kit::setup_client().await.inspect(&table).await.unwrap();
    assert!(
        found.table.is_some(),
        "a table of another program is not deleted"
    );
}

#[tokio::test]
async fn f_141_a_missing_index_is_refused_and_setup_adds_it() {
    let (client, table) = (kit::client().await, dueline_tests_engines::unique("index"));
    create_bare(&client, &table, ["pk", "sk"], [Kind::S, Kind::B]).await;
    let error = refused(options(&table, &kit::endpoint().await)).await;
    assert!(
        matches!(&error, OpenError::NoIndex { index: "due", .. }),
        "{error:?}"
    );
    let steps = set_up(&table).await;
    assert!(steps.contains(&SetupStep::AddIndex), "{steps:?}");
    let store = DynamoStore::open(options(&table, &kit::endpoint().await), Meter::default()).await;
    assert_eq!(store.expect("a store").slots(), 8);
}

#[tokio::test]
async fn f_141_a_table_that_was_not_set_up_or_is_foreign_or_newer_is_refused() {
    let (client, table) = (kit::client().await, dueline_tests_engines::unique("meta"));
    let steps = [SetupStep::CreateTable, SetupStep::Wait];
    kit::setup_client()
        .await
        .execute(&table, &steps)
        .await
        .expect("a table");
    let options = options(&table, &kit::endpoint().await);
    let error = refused(options.clone()).await;
    assert!(matches!(error, OpenError::NotSetUp { .. }), "{error:?}");
    put_meta(&client, &table, "another-program", "1").await;
    let error = refused(options.clone()).await;
    assert!(
        matches!(&error, OpenError::Foreign { app, .. } if app == "another-program"),
        "{error:?}"
    );
    put_meta(&client, &table, "dueline", "2").await;
    let error = refused(options.clone()).await;
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error:?}"
    );
    put_meta(&client, &table, "dueline", "1").await;
    DynamoStore::open(options, Meter::default())
        .await
        .expect("a store");
}

#[tokio::test]
async fn f_141_an_endpoint_without_a_listener_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let error = refused(options("any", &endpoint)).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&endpoint), "{error}");
}

#[tokio::test]
async fn f_141_a_missing_permission_is_reported() {
    let options = kit::table(2).await;
    let (client, connection) = FaultyConnection::client(&kit::endpoint().await).await;
    let code = "com.amazonaws.dynamodb.v20120810#AccessDeniedException";
    connection.fault("DescribeTable", 1, Fault::Refuse(400, code));
    let opened = DynamoStore::open_at(client.into(), options, Meter::default()).await;
    let error = opened.map(|_| ()).expect_err("no permission");
    assert!(matches!(error, OpenError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn f_141_invalid_settings_are_reported_before_any_call() {
    let error = refused(options("any", "localhost:8000")).await;
    assert!(
        matches!(error, OpenError::Settings(SetupError::Endpoint(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn setup_creates_a_table_once_and_then_finds_nothing_to_do() {
    let (setup_client, table) = (
        kit::setup_client().await,
        dueline_tests_engines::unique("setup"),
    );
    assert_eq!(
        setup_client.inspect(&table).await.unwrap(),
        TableState::default()
    );
    let steps = set_up(&table).await;
    assert_eq!(steps[0], SetupStep::CreateTable);
    assert!(steps.iter().all(|step| !step.to_string().is_empty()));
    let found = setup_client.inspect(&table).await.unwrap();
    assert_eq!(found.ttl, Some(true));
    let shape = found.table.clone().unwrap();
    assert!(
        shape.has_dueline_key() && shape.on_demand && shape.index_problem().is_none(),
        "{shape:?}"
    );
    assert_eq!(shape.index.unwrap().projection, "KEYS_ONLY");
    let again = set_up(&table).await;
    assert!(again.iter().all(|step| !step.changes()), "{again:?}");
    // The same steps again are not an error: two processes may run a setup at the same time.
    setup_client
        .execute(&table, &steps)
        .await
        .expect("nothing to do");
    let other = TableSpec {
        slots: 32,
        ..spec(&table)
    };
    let drift = setup::plan(&found, &other);
    assert!(
        matches!(&drift[..], [SetupStep::Drift(what)] if what.contains("8 slots")),
        "{drift:?}"
    );
    assert_eq!(setup_client.remove(&table).await, Ok(true));
    assert_eq!(
        setup_client.remove(&table).await,
        Ok(false),
        "deleted already"
    );
    assert_eq!(setup_client.inspect(&table).await.unwrap().table, None);
}
