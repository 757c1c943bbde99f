//! Engines of DynamoDB.

use std::time::Duration;

use dueline_tests_engines::{Engine, EngineName, unique};

use crate::{
    clients::{self, CALL_MAX, make_table, put_new},
    wait::{is_alive, listens, until},
};

/// Long enough to be sure that nobody answers, short enough to wait for.
const NO_ANSWER: Duration = Duration::from_millis(300);

#[tokio::test]
async fn dynoxide_starts_answers_and_is_gone_with_its_handle() {
    let engine = Engine::dynoxide().await;
    assert_eq!(engine.name(), EngineName::Dynoxide);
    obeys_conditions(&engine).await;
    goes_with_its_handle(engine);
}

/// What a store needs most: the second of two equal writes is refused.
pub(crate) async fn obeys_conditions(engine: &Engine) {
    let client = clients::dynamodb(engine.url(), CALL_MAX);
    let table = unique("conditions");
    make_table(&client, &table).await;
    assert!(put_new(&client, &table, "a").await);
    assert!(!put_new(&client, &table, "a").await);
}

pub(crate) fn goes_with_its_handle(engine: Engine) {
    let (pid, url) = (engine.pid(), engine.url().to_owned());
    assert!(is_alive(pid) && listens(&url));
    drop(engine);
    assert!(!is_alive(pid), "the engine lives on");
    until("the proxy is gone", || !listens(&url));
}

#[tokio::test]
async fn a_frozen_engine_answers_nothing_until_it_is_thawed() {
    let engine = Engine::dynoxide().await;
    let patient = clients::dynamodb(engine.url(), CALL_MAX);
    let hasty = clients::dynamodb(engine.url(), NO_ANSWER);
    engine.freeze();
    let (slow, refused) = tokio::join!(patient.list_tables().send(), async {
        let refused = hasty.list_tables().send().await;
        engine.thaw();
        refused
    });
    assert!(refused.is_err(), "a frozen engine has answered");
    assert!(slow.is_ok(), "what waited was not answered: {slow:?}");
}

#[tokio::test]
async fn a_frozen_engine_is_gone_with_its_handle() {
    let engine = Engine::dynoxide().await;
    let pid = engine.pid();
    engine.freeze();
    drop(engine);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_restarted_engine_answers_at_the_same_address_and_has_forgotten_everything() {
    let mut engine = Engine::dynoxide().await;
    let (pid, url) = (engine.pid(), engine.url().to_owned());
    let client = clients::dynamodb(&url, CALL_MAX);
    make_table(&client, &unique("forgotten")).await;
    engine.restart().await;
    assert_eq!(engine.url(), url);
    assert_ne!(engine.pid(), pid);
    assert!(!is_alive(pid));
    let tables = client.list_tables().send().await.unwrap();
    assert!(tables.table_names().is_empty());
}

#[tokio::test]
async fn cut_connections_fail_what_is_under_way_and_nothing_after_it() {
    let engine = Engine::dynoxide().await;
    let client = clients::dynamodb(engine.url(), CALL_MAX);
    client.list_tables().send().await.unwrap();
    // Frozen, it cannot answer before the cut.
    engine.freeze();
    let (under_way, ()) = tokio::join!(client.list_tables().send(), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        engine.cut_connections().await;
    });
    let error = under_way.expect_err("its connection was cut");
    assert!(
        error.as_service_error().is_none(),
        "no answer can have come: {error:?}"
    );
    engine.thaw();
    client.list_tables().send().await.unwrap();
}
