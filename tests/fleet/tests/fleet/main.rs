//! A fleet of real processes: what each role does, and what it does without the others.

mod availability;
mod connection;
mod controllers;
mod drain;
mod executors;
mod frontend;
mod isolation;
mod latency;
mod queues;
mod start;

use std::time::Duration;

use dueline_tests_engines::{dynamodb, sqs};
use dueline_tests_fleet::{Fleet, Plan};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A fleet on the engines that all tests of this program share.
async fn fleet(plan: &Plan) -> Fleet {
    let (store, queue) = tokio::join!(dynamodb(), sqs());
    Fleet::start(&store.url, &queue.url, plan).await
}
