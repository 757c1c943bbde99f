//! Nothing starts on what cannot work, and everything says why.

use std::sync::Arc;

use dueline_tests_engines::{dynamodb, sqs};
use dueline_tests_fleet::{Role, Site, with_others};

/// Programs that open a store and a queue.
const ROLES: [Role; 3] = [Role::Frontend, Role::Consumer, Role::StatusController];
/// Nothing listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

/// As documented with the command line.
const INVALID: i32 = 2;
const NOT_FOUND: i32 = 3;
const UNAVAILABLE: i32 = 5;
const DENIED: i32 = 7;

async fn site() -> Arc<Site> {
    let (store, queue) = tokio::join!(dynamodb(), sqs());
    Arc::new(Site::new(&store.url, &queue.url))
}

/// Each role ends with this code and names all of these.
async fn refused(site: &Site, store: &str, queue: &str, code: i32, names: &[&str]) {
    refused_with(site, store, queue, &Site::variables(), code, names).await;
}

async fn refused_with(
    site: &Site,
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
        let ended = site.run(&role.program(), &args, variables).await;
        assert_eq!(ended.code, Some(code), "{role:?}: {ended:?}");
        let error = ended
            .stderr
            .lines()
            .find(|line| line.starts_with("error: "));
        let error = error.unwrap_or_else(|| panic!("{role:?}: {ended:?}"));
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
    let _turn = with_others().await;
    let site = site().await;
    let names = [site.table(), "does not exist", "dueline setup"];
    refused(&site, &site.store(), &site.queue(), NOT_FOUND, &names).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_missing_index_is_named() {
    let _turn = with_others().await;
    let site = site().await;
    site.aws().make_table_without_index().await;
    let names = [site.table(), "index 'due'", "dueline setup"];
    refused(&site, &site.store(), &site.queue(), INVALID, &names).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_store_of_a_newer_program_is_refused_and_left_alone() {
    let _turn = with_others().await;
    let site = site().await;
    site.set_up().await;
    site.aws().write_newer_version().await;
    let names = [site.table(), "schema version 999"];
    refused(&site, &site.store(), &site.queue(), INVALID, &names).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_a_wrong_endpoint_is_named() {
    let _turn = with_others().await;
    let site = site().await;
    site.set_up().await;
    let store = format!("dynamodb://{}?endpoint={NOWHERE}", site.table());
    let names = ["DynamoDB", NOWHERE];
    refused(&site, &store, &site.queue(), UNAVAILABLE, &names).await;
    let queue = format!("sqs://{}?endpoint={NOWHERE}", site.prefix());
    let names = ["SQS", NOWHERE];
    refused(&site, &site.store(), &queue, UNAVAILABLE, &names).await;
    let store = format!("dynamodb://{}?endpoint=localhost", site.table());
    refused(&site, &store, &site.queue(), INVALID, &["'localhost'"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_a_wrong_region_is_named() {
    let _turn = with_others().await;
    let site = site().await;
    site.set_up().await;
    // A region that no AWS has leads to a host that nobody has.
    let more = "region=nowhere-1&connect_timeout_ms=500&timeout_ms=1000";
    let store = format!("dynamodb://{}?{more}", site.table());
    refused(&site, &store, &site.queue(), UNAVAILABLE, &["nowhere-1"]).await;
    let queue = format!("sqs://{}?{more}", site.prefix());
    refused(&site, &site.store(), &queue, UNAVAILABLE, &["nowhere-1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_missing_credentials_and_regions_are_named() {
    let _turn = with_others().await;
    let site = site().await;
    site.set_up().await;
    let home = site.place().path().display().to_string();
    let without = |name: &str| {
        let kept = Site::variables()
            .into_iter()
            .filter(|(known, _)| !known.contains(name));
        kept.chain([("HOME", "")]).collect::<Vec<_>>()
    };
    for (what, code, name) in [
        ("KEY", DENIED, "credentials"),
        ("REGION", INVALID, "region"),
    ] {
        let mut variables = without(what);
        variables.retain(|(name, _)| *name != "HOME");
        // No profile of whoever runs this test helps out.
        variables.push(("HOME", &home));
        let (store, queue) = (site.store(), site.queue());
        refused_with(&site, &store, &queue, &variables, code, &[name]).await;
    }
}
