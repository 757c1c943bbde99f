//! Processes refuse to start on unusable settings or resources, and name the reason.

use std::sync::Arc;

use dueline_tests_engines::{dynamodb, sqs};
use dueline_tests_fleet::{FleetResources, FleetRole, shared_machine};

/// Programs that open a store and a queue.
const ROLES: [FleetRole; 3] = [
    FleetRole::Frontend,
    FleetRole::Consumer,
    FleetRole::StatusController,
];
/// An address at which nothing listens.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Exit codes as documented with the command line.
const INVALID: i32 = 2;
const NOT_FOUND: i32 = 3;
const UNAVAILABLE: i32 = 5;
const DENIED: i32 = 7;

async fn resources() -> Arc<FleetResources> {
    let (store, queue) = tokio::join!(dynamodb(), sqs());
    Arc::new(FleetResources::new(&store.url, &queue.url))
}

/// Each role exits with this code, and its error contains all of these texts.
async fn assert_refused(
    resources: &FleetResources,
    store: &str,
    queue: &str,
    code: i32,
    names: &[&str],
) {
    assert_refused_with(
        resources,
        store,
        queue,
        &FleetResources::variables(),
        code,
        names,
    )
    .await;
}

async fn assert_refused_with(
    resources: &FleetResources,
    store: &str,
    queue: &str,
    variables: &[(&str, &str)],
    code: i32,
    names: &[&str],
) {
    let args = [
        "--store",
        store,
        "--queue",
        queue,
        "--listen",
        "127.0.0.1:0",
    ];
    for role in ROLES {
        let exited = resources.run(&role.program(), &args, variables).await;
        assert_eq!(exited.code, Some(code), "{role:?}: {exited:?}");
        let error = exited
            .stderr
            .lines()
            .find(|line| line.starts_with("error: "));
        let error = error.unwrap_or_else(|| panic!("{role:?}: {exited:?}"));
        for name in names {
            assert!(
                error.contains(name),
                "{role:?} does not name {name}: {error}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_missing_table_is_named() {
    let _machine = shared_machine().await;
    let resources = resources().await;
    let names = [resources.table(), "does not exist", "dueline setup"];
    assert_refused(
        &resources,
        &resources.store(),
        &resources.queue(),
        NOT_FOUND,
        &names,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_missing_index_is_named() {
    let _machine = shared_machine().await;
    let resources = resources().await;
    resources
        .engine_clients()
        .create_table_without_index()
        .await;
    let names = [resources.table(), "index 'due'", "dueline setup"];
    assert_refused(
        &resources,
        &resources.store(),
        &resources.queue(),
        INVALID,
        &names,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_store_of_a_newer_program_is_refused_and_left_alone() {
    let _machine = shared_machine().await;
    let resources = resources().await;
    resources.set_up().await;
    resources.engine_clients().write_newer_version().await;
    let names = [resources.table(), "schema version 999"];
    assert_refused(
        &resources,
        &resources.store(),
        &resources.queue(),
        INVALID,
        &names,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_a_wrong_endpoint_is_named() {
    let _machine = shared_machine().await;
    let resources = resources().await;
    resources.set_up().await;
    let store = format!("dynamodb://{}?endpoint={NOWHERE}", resources.table());
    let names = ["DynamoDB", NOWHERE];
    assert_refused(&resources, &store, &resources.queue(), UNAVAILABLE, &names).await;
    let queue = format!("sqs://{}?endpoint={NOWHERE}", resources.prefix());
    let names = ["SQS", NOWHERE];
    assert_refused(&resources, &resources.store(), &queue, UNAVAILABLE, &names).await;
    let store = format!("dynamodb://{}?endpoint=localhost", resources.table());
    assert_refused(
        &resources,
        &store,
        &resources.queue(),
        INVALID,
        &["'localhost'"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_a_wrong_region_is_named() {
    let _machine = shared_machine().await;
    let resources = resources().await;
    resources.set_up().await;
    // The host name of a region that does not exist does not resolve.
    let more = "region=nowhere-1&connect_timeout_ms=500&timeout_ms=1000";
    let store = format!("dynamodb://{}?{more}", resources.table());
    assert_refused(
        &resources,
        &store,
        &resources.queue(),
        UNAVAILABLE,
        &["nowhere-1"],
    )
    .await;
    let queue = format!("sqs://{}?{more}", resources.prefix());
    assert_refused(
        &resources,
        &resources.store(),
        &queue,
        UNAVAILABLE,
        &["nowhere-1"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_missing_credentials_and_regions_are_named() {
    let _machine = shared_machine().await;
    let resources = resources().await;
    resources.set_up().await;
    let home = resources.folder().path().display().to_string();
    let without = |name: &str| {
        let others = FleetResources::variables()
            .into_iter()
            .filter(|(variable, _)| !variable.contains(name));
        others.chain([("HOME", "")]).collect::<Vec<_>>()
    };
    for (what, code, name) in [
        ("KEY", DENIED, "credentials"),
        ("REGION", INVALID, "region"),
    ] {
        let mut variables = without(what);
        variables.retain(|(name, _)| *name != "HOME");
        // An empty home, so that no AWS profile of the user is read.
        variables.push(("HOME", &home));
        let (store, queue) = (resources.store(), resources.queue());
        assert_refused_with(&resources, &store, &queue, &variables, code, &[name]).await;
    }
}
