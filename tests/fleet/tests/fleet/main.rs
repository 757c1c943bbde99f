//! Tests of a fleet of real processes: what each role does, with and without the other roles.

mod availability;
mod connection;
mod controllers;
mod drain;
mod executors;
mod families;
mod frontend;
mod isolation;
mod latency;
mod queues;
mod schedules;
mod start;
mod traces;

use std::time::Duration;

use dueline_tests_engines::{dynamodb, sqs};
use dueline_tests_fleet::{Fleet, FleetPlan};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A fleet on the engines that all tests of this binary share.
async fn fleet(plan: &FleetPlan) -> Fleet {
    let (store, queue) = tokio::join!(dynamodb(), sqs());
    Fleet::start(&store.url, &queue.url, plan).await
}
