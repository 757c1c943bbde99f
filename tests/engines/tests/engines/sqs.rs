//! Engines of SQS.

use dueline_tests_engines::{Engine, EngineName, unique};

use crate::{
    clients::{self, send_and_receive},
    dynamodb::{ends_with_its_handle, obeys_conditions},
};

#[tokio::test]
async fn ministack_starts_answers_and_ends_with_its_handle() {
    let engine = Engine::ministack().await;
    assert_eq!(engine.name(), EngineName::Ministack);
    carries_messages(&engine).await;
    obeys_conditions(&engine).await;
    ends_with_its_handle(engine);
}

#[tokio::test]
async fn ministack_thaws_and_restarts() {
    let mut engine = Engine::ministack().await;
    let pid = engine.pid();
    engine.freeze();
    engine.thaw();
    carries_messages(&engine).await;
    engine.restart().await;
    assert_ne!(engine.pid(), pid);
    carries_messages(&engine).await;
}

pub(crate) async fn carries_messages(engine: &Engine) {
    let client = clients::sqs(engine.url());
    send_and_receive(&client, &unique("queue"), "a task is due").await;
}
