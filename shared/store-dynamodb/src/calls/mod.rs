//! All calls to DynamoDB: they are sent and metered here, and failures become errors of the store.
//!
//! There is no table scan here, and so none in this crate.

mod read;
mod transact;
mod write;

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{Client, types::ConsumedCapacity};
use dueline_aws::{Class, Connection, Cost, Meter};

pub(crate) use read::{ItemKey, QueryRequest, SortRange};
pub(crate) use transact::{TransactionOutcome, TransactionWrite};
pub(crate) use write::{ConditionalOutcome, ItemChange, WriteCondition};

/// Most tries of an operation that conflicts with other writes; then the table counts as throttled.
pub(crate) const TRIES_MAX: u32 = 8;

/// A table whose calls are metered.
#[derive(Clone, Debug)]
pub(crate) struct MeteredTable {
    pub(crate) client: Client,
    pub(crate) name: Arc<str>,
    pub(crate) meter: Meter,
    pub(crate) connection: Connection,
}

/// The job, if there is one, and the store's operation for which a call is made. Costs are metered by both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallContext<'a> {
    pub(crate) job: Option<&'a str>,
    pub(crate) operation: &'static str,
}

impl<'a> CallContext<'a> {
    pub(crate) const fn of_job(job: &'a str, operation: &'static str) -> Self {
        let job = Some(job);
        Self { job, operation }
    }

    pub(crate) const fn of_table(operation: &'static str) -> Self {
        let job = None;
        Self { job, operation }
    }
}

impl MeteredTable {
    fn count_read<'a>(
        &self,
        context: CallContext<'_>,
        used: impl IntoIterator<Item = &'a ConsumedCapacity>,
    ) {
        let units = used
            .into_iter()
            .filter_map(ConsumedCapacity::capacity_units);
        let cost = Cost {
            store_requests: 1,
            read_units: units.sum(),
            ..Cost::default()
        };
        self.answered(context, cost);
    }

    fn count_write<'a>(
        &self,
        context: CallContext<'_>,
        used: impl IntoIterator<Item = &'a ConsumedCapacity>,
    ) {
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
        self.answered(context, cost);
    }

    /// Counts a write whose condition failed. It is charged like one that succeeds, but the answer does not report it.
    fn count_refused(&self, context: CallContext<'_>, units: usize) {
        let write_units = f64::from(u32::try_from(units).unwrap_or(u32::MAX));
        let cost = Cost {
            store_requests: 1,
            write_units,
            ..Cost::default()
        };
        self.answered(context, cost);
    }

    /// Counts a call that failed as a request.
    fn count_failed(&self, context: CallContext<'_>, class: Class) {
        let cost = Cost {
            store_requests: 1,
            ..Cost::default()
        };
        self.meter.add(context.job, context.operation, cost);
        self.connection.failed(class);
    }

    fn answered(&self, context: CallContext<'_>, cost: Cost) {
        self.meter.add(context.job, context.operation, cost);
        self.connection.answered();
    }
}

/// Waits before another try: a random time up to a bound that doubles with each try.
pub(crate) async fn pause(tries: u32) {
    let max_ms = 25_u64 << tries.min(6);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=max_ms))).await;
}
