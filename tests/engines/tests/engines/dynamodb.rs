//! Engines of DynamoDB.

use std::time::Duration;

use dueline_tests_engines::{Engine, EngineName, unique};

use crate::{
    clients::{self, CALL_MAX, create_table, put_new},
    wait::{is_alive, listens, until},
};

/// The timeout of a call that gets no answer.
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn dynoxide_starts_answers_and_ends_with_its_handle() {
    let engine = Engine::dynoxide().await;
    assert_eq!(engine.name(), EngineName::Dynoxide);
    obeys_conditions(&engine).await;
    ends_with_its_handle(engine);
}

/// Checks conditional writes: the second of two equal writes is refused.
pub(crate) async fn obeys_conditions(engine: &Engine) {
    let client = clients::dynamodb(engine.url(), CALL_MAX);
    let table = unique("conditions");
    create_table(&client, &table).await;
    assert!(put_new(&client, &table, "a").await);
    assert!(!put_new(&client, &table, "a").await);
}

pub(crate) fn ends_with_its_handle(engine: Engine) {
    let (pid, url) = (engine.pid(), engine.url().to_owned());
    assert!(is_alive(pid) && listens(&url));
    drop(engine);
    assert!(!is_alive(pid), "the engine still runs");
    until("the proxy has stopped", || !listens(&url));
}

#[tokio::test]
async fn a_frozen_engine_answers_nothing_until_it_is_thawed() {
    let engine = Engine::dynoxide().await;
    let waiting = clients::dynamodb(engine.url(), CALL_MAX);
    let impatient = clients::dynamodb(engine.url(), SHORT_TIMEOUT);
    engine.freeze();
    let (slow, timed_out) = tokio::join!(waiting.list_tables().send(), async {
        let timed_out = impatient.list_tables().send().await;
        engine.thaw();
        timed_out
    });
    assert!(timed_out.is_err(), "a frozen engine has answered");
    assert!(slow.is_ok(), "the waiting call was not answered: {slow:?}");
}

#[tokio::test]
async fn a_frozen_engine_ends_with_its_handle() {
    let engine = Engine::dynoxide().await;
    let pid = engine.pid();
    engine.freeze();
    drop(engine);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_restarted_engine_answers_at_the_same_address_and_is_empty() {
    let mut engine = Engine::dynoxide().await;
    let (pid, url) = (engine.pid(), engine.url().to_owned());
    let client = clients::dynamodb(&url, CALL_MAX);
    create_table(&client, &unique("lost")).await;
    engine.restart().await;
    assert_eq!(engine.url(), url);
    assert_ne!(engine.pid(), pid);
    assert!(!is_alive(pid));
    let tables = client.list_tables().send().await.unwrap();
    assert!(tables.table_names().is_empty());
}

#[tokio::test]
async fn cut_connections_fail_calls_in_flight_and_no_later_ones() {
    let engine = Engine::dynoxide().await;
    let client = clients::dynamodb(engine.url(), CALL_MAX);
    client.list_tables().send().await.unwrap();
    // A frozen engine cannot answer before the cut.
    engine.freeze();
    let (in_flight, ()) = tokio::join!(client.list_tables().send(), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        engine.cut_connections().await;
    });
    let error = in_flight.expect_err("its connection was cut");
    assert!(
        error.as_service_error().is_none(),
        "there was an answer: {error:?}"
    );
    engine.thaw();
    client.list_tables().send().await.unwrap();
}
