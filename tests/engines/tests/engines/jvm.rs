//! Engines on a JVM; enabled by `--features jvm`.

use dueline_tests_engines::{Engine, EngineName};

use crate::{
    dynamodb::{ends_with_its_handle, obeys_conditions},
    sqs::carries_messages,
};

#[tokio::test]
async fn dynamodb_local_starts_answers_and_ends_with_its_handle() {
    let engine = Engine::dynamodb_local().await;
    assert_eq!(engine.name(), EngineName::DynamoDbLocal);
    obeys_conditions(&engine).await;
    ends_with_its_handle(engine);
}

#[tokio::test]
async fn elasticmq_starts_answers_and_ends_with_its_handle() {
    let engine = Engine::elasticmq().await;
    assert_eq!(engine.name(), EngineName::ElasticMq);
    carries_messages(&engine).await;
    ends_with_its_handle(engine);
}

#[tokio::test]
async fn engines_on_a_jvm_thaw_and_restart() {
    let mut dynamodb = Engine::dynamodb_local().await;
    let mut elasticmq = Engine::elasticmq().await;
    for engine in [&dynamodb, &elasticmq] {
        engine.freeze();
        engine.thaw();
    }
    obeys_conditions(&dynamodb).await;
    carries_messages(&elasticmq).await;
    dynamodb.restart().await;
    elasticmq.restart().await;
    obeys_conditions(&dynamodb).await;
    carries_messages(&elasticmq).await;
}
