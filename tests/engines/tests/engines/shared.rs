//! The engines that all tests of a process share.

use std::time::Duration;

use dueline_tests_engines::{dynamodb, sqs, unique};

use crate::clients::{self, CALL_MAX, create_table, put_new, send_and_receive};

#[tokio::test]
async fn all_tests_of_a_process_share_one_dynamodb() {
    let (one, other) = tokio::join!(dynamodb(), dynamodb());
    assert_eq!(one, other);
    let table = unique("shared");
    create_table(&clients::dynamodb(&one.url, CALL_MAX), &table).await;
    assert!(put_new(&clients::dynamodb(&other.url, CALL_MAX), &table, "a").await);
}

#[tokio::test]
async fn all_tests_of_a_process_share_one_sqs() {
    let (one, other) = tokio::join!(sqs(), sqs());
    assert_eq!(one, other);
    send_and_receive(&clients::sqs(&one.url), &unique("shared"), "once").await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_does_not_advance_while_an_engine_starts() {
    let started = tokio::time::timeout(Duration::from_secs(1), dynamodb()).await;
    assert!(started.is_ok(), "paused time has advanced");
}

#[test]
fn names_are_unique_and_fit_tables_and_queues() {
    let (one, other) = (unique("a-prefix"), unique("a-prefix"));
    assert_ne!(one, other);
    assert!(one.starts_with("a-prefix-") && one.len() < 30);
    assert!(
        one.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    );
}
