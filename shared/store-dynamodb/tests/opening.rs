//! What is said about a table that cannot be used, and how one is set up.

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
    setup::{self, Found, Step, Wanted},
};
use kit::{Act, Wire};

async fn refused(options: DynamoOptions) -> OpenError {
    let opened = DynamoStore::open(options, Meter::default()).await;
    opened.map(|_| ()).expect_err("this table cannot be used")
}

fn wanted(table: &str) -> Wanted {
    Wanted {
        table: table.into(),
        slots: 8,
        backups: true,
    }
}

async fn set_up(table: &str) -> Vec<Step> {
    let site = kit::site().await;
    let found = site.inspect(table).await.expect("an answer");
    let steps = setup::plan(&found, &wanted(table));
    site.carry_out(table, &steps).await.expect("a table");
    steps
}

/// A table with a key, and nothing else.
async fn bare(client: &Client, table: &str, names: [&str; 2], kinds: [Kind; 2]) {
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
async fn f_141_a_missing_table_is_named_with_its_place_and_the_way_out() {
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
    bare(&client, &table, ["id", "sk"], [Kind::S, Kind::B]).await;
    let error = refused(options(&table, &kit::endpoint().await)).await;
    assert!(
        matches!(&error, OpenError::ForeignKey { found, .. } if found == "id (S), sk (B)"),
        "{error:?}"
    );
    let found = kit::site().await.inspect(&table).await.unwrap();
    let steps = setup::plan(&found, &wanted(&table));
    assert!(matches!(&steps[..], [Step::Foreign(_)]), "{steps:?}");
    let carried_out = kit::site().await.carry_out(&table, &steps).await;
    assert!(matches!(carried_out, Err(OpenError::Refused { .. })));
    let removed = kit::site().await.remove(&table).await;
    assert!(
        matches!(removed, Err(OpenError::ForeignKey { .. })),
        "{removed:?}"
    );
    let found = kit::site().await.inspect(&table).await.unwrap();
    assert!(found.table.is_some(), "a table of somebody else stays");
}

#[tokio::test]
async fn f_141_a_missing_index_is_refused_and_setup_adds_it() {
    let (client, table) = (kit::client().await, dueline_tests_engines::unique("index"));
    bare(&client, &table, ["pk", "sk"], [Kind::S, Kind::B]).await;
    let error = refused(options(&table, &kit::endpoint().await)).await;
    assert!(
        matches!(&error, OpenError::NoIndex { index: "due", .. }),
        "{error:?}"
    );
    let steps = set_up(&table).await;
    assert!(steps.contains(&Step::AddIndex), "{steps:?}");
    let store = DynamoStore::open(options(&table, &kit::endpoint().await), Meter::default()).await;
    assert_eq!(store.expect("a store").slots(), 8);
}

#[tokio::test]
async fn f_141_a_table_that_was_not_set_up_or_is_foreign_or_newer_is_refused() {
    let (client, table) = (kit::client().await, dueline_tests_engines::unique("meta"));
    let steps = [Step::CreateTable, Step::Wait];
    kit::site()
        .await
        .carry_out(&table, &steps)
        .await
        .expect("a table");
    let options = options(&table, &kit::endpoint().await);
    let error = refused(options.clone()).await;
    assert!(matches!(error, OpenError::NotSetUp { .. }), "{error:?}");
    put_meta(&client, &table, "somebody-else", "1").await;
    let error = refused(options.clone()).await;
    assert!(
        matches!(&error, OpenError::Foreign { app, .. } if app == "somebody-else"),
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
async fn f_141_an_endpoint_where_nobody_listens_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let error = refused(options("any", &endpoint)).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&endpoint), "{error}");
}

#[tokio::test]
async fn f_141_a_missing_permission_is_told() {
    let options = kit::table(2).await;
    let (client, wire) = Wire::client(&kit::endpoint().await).await;
    let code = "com.amazonaws.dynamodb.v20120810#AccessDeniedException";
    wire.fault("DescribeTable", 1, Act::Refuse(400, code));
    let opened = DynamoStore::open_at(client.into(), options, Meter::default()).await;
    let error = opened.map(|_| ()).expect_err("no permission");
    assert!(matches!(error, OpenError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn f_141_bad_settings_are_told_before_anything_is_sent() {
    let error = refused(options("any", "localhost:8000")).await;
    assert!(
        matches!(error, OpenError::Settings(SetupError::Endpoint(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn setup_makes_a_table_once_and_then_finds_nothing_to_do() {
    let (site, table) = (kit::site().await, dueline_tests_engines::unique("setup"));
    assert_eq!(site.inspect(&table).await.unwrap(), Found::default());
    let steps = set_up(&table).await;
    assert_eq!(steps[0], Step::CreateTable);
    assert!(steps.iter().all(|step| !step.to_string().is_empty()));
    let found = site.inspect(&table).await.unwrap();
    assert_eq!(found.ttl, Some(true));
    let shape = found.table.clone().unwrap();
    assert!(
        shape.has_our_key() && shape.on_demand && shape.index_flaw().is_none(),
        "{shape:?}"
    );
    assert_eq!(shape.index.unwrap().projection, "KEYS_ONLY");
    let again = set_up(&table).await;
    assert!(again.iter().all(|step| !step.changes()), "{again:?}");
    // The same steps once more are no error either: two may set up at the same time.
    site.carry_out(&table, &steps).await.expect("nothing to do");
    let other = Wanted {
        slots: 32,
        ..wanted(&table)
    };
    let drift = setup::plan(&found, &other);
    assert!(
        matches!(&drift[..], [Step::Drift(what)] if what.contains("8 slots")),
        "{drift:?}"
    );
    assert_eq!(site.remove(&table).await, Ok(true));
    assert_eq!(site.remove(&table).await, Ok(false), "gone already");
    assert_eq!(site.inspect(&table).await.unwrap().table, None);
}
