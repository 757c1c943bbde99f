//! Other designs of a task store on DynamoDB, for comparison.

use crate::Prices;

/// A design of a task store on DynamoDB, with the cost of one run of a small scheduled task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// A short name.
    pub name: &'static str,
    /// How it works.
    pub how: &'static str,
    /// Write units of table and indexes.
    pub wru: f64,
    /// Read units.
    pub rru: f64,
    /// SQS requests.
    pub sqs_requests: f64,
}

impl Design {
    /// What a million tasks cost.
    pub fn million_tasks_usd(&self, prices: &Prices) -> f64 {
        self.wru * prices.million_wru
            + self.rru * prices.million_rru
            + self.sqs_requests * prices.million_sqs_requests
    }
}

const fn design(name: &'static str, how: &'static str, wru: f64, rru: f64, sqs: f64) -> Design {
    Design {
        name,
        how,
        wru,
        rru,
        sqs_requests: sqs,
    }
}

/// The designs, the most expensive first.
pub const DESIGNS: &[Design] = &[
    design(
        "entities",
        "task and its due entry as two items, changed in transactions",
        32.0,
        1.5,
        3.0,
    ),
    design(
        "status lists",
        "one item; index by (status, trigger), another one by status for lists",
        26.0,
        1.5,
        3.0,
    ),
    design(
        "status key",
        "one item; index by (status, trigger): each step moves the entry",
        16.0,
        1.5,
        3.0,
    ),
    design(
        "buckets",
        "one item; index by time bucket, moved once when enqueued",
        8.0,
        0.1,
        0.3,
    ),
    design(
        "cursor",
        "sparse index that a cursor follows; no write when a task is enqueued",
        5.0,
        0.1,
        0.3,
    ),
    design(
        "time is the key",
        "no index: the id carries the time; a retry or a new date needs another item",
        3.0,
        0.5,
        0.3,
    ),
];
