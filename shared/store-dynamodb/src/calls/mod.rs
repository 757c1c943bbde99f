//! Every call to DynamoDB: sent, metered and, when it failed, put into words in one place.
//!
//! There is no scan here, and so nowhere in this crate.

mod read;
mod transact;
mod write;

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{Client, types::ConsumedCapacity};
use dueline_aws::{Class, Connection, Cost, Meter};

pub(crate) use read::{Ask, Key, Range};
pub(crate) use transact::{Transacted, Write};
pub(crate) use write::{Change, Condition, Conditional};

/// Tries of anything that others may be in the way of, until the table counts as throttled.
pub(crate) const TRIES_MAX: u32 = 8;

/// The table and the meter.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: Arc<str>,
    pub(crate) meter: Meter,
    pub(crate) connection: Connection,
}

/// What a call is for: its job, if it is for one, and the operation of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct For<'a> {
    pub(crate) job: Option<&'a str>,
    pub(crate) operation: &'static str,
}

impl<'a> For<'a> {
    pub(crate) const fn job(job: &'a str, operation: &'static str) -> Self {
        let job = Some(job);
        Self { job, operation }
    }

    pub(crate) const fn all(operation: &'static str) -> Self {
        let job = None;
        Self { job, operation }
    }
}

impl Table {
    fn count_read<'a>(&self, of: For<'_>, used: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        let units = used
            .into_iter()
            .filter_map(ConsumedCapacity::capacity_units);
        let cost = Cost {
            store_requests: 1,
            read_units: units.sum(),
            ..Cost::default()
        };
        self.answered(of, cost);
    }

    fn count_write<'a>(&self, of: For<'_>, used: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        let mut cost = Cost {
            store_requests: 1,
            ..Cost::default()
        };
        for used in used {
            cost.write_units += used.capacity_units().unwrap_or_default();
            let indexes = used.global_secondary_indexes().into_iter().flatten();
            let units = indexes.filter_map(|(_, capacity)| capacity.capacity_units());
            cost.index_write_units += units.sum::<f64>();
        }
        self.answered(of, cost);
    }

    /// A write whose condition did not hold is charged like one that did, but no answer says so.
    fn count_refused(&self, of: For<'_>, units: usize) {
        let write_units = f64::from(u32::try_from(units).unwrap_or(u32::MAX));
        let cost = Cost {
            store_requests: 1,
            write_units,
            ..Cost::default()
        };
        self.answered(of, cost);
    }

    /// A call that failed; it is a request all the same.
    fn count_failed(&self, of: For<'_>, class: Class) {
        let cost = Cost {
            store_requests: 1,
            ..Cost::default()
        };
        self.meter.add(of.job, of.operation, cost);
        self.connection.failed(class);
    }

    fn answered(&self, of: For<'_>, cost: Cost) {
        self.meter.add(of.job, of.operation, cost);
        self.connection.answered();
    }
}

/// Waits before another try: a random time up to a bound that doubles.
pub(crate) async fn pause(tries: u32) {
    let most_ms = 25_u64 << tries.min(6);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=most_ms))).await;
}
