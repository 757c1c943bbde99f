//! Checks a deployment: reports what exists, what is not as it should be, and how to fix it. Nothing is changed.

#[cfg(feature = "aws")]
mod call_recorder;
mod clock;
mod file;
mod finding;
#[cfg(feature = "aws")]
mod other_queues;
#[cfg(feature = "aws")]
mod permissions;
#[cfg(feature = "aws")]
mod queues;
#[cfg(feature = "aws")]
mod table;

use std::{sync::Arc, time::Duration};

use dueline_domain::JobName;
use dueline_ports::{Clock, Store};

pub use clock::ClockReading;
pub use finding::{Finding, State};

use crate::{QueueAddress, StoreAddress};

/// The inputs of a check beside the addresses.
pub struct DoctorContext {
    /// The command line that sets up this deployment, which is the proposed fix of many findings.
    pub setup: String,
    /// This machine's clock.
    pub clock: Arc<dyn Clock>,
}

/// Whether a service or server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No request was made.
    NotTried,
    /// It did not answer.
    No,
    /// It answered, if only with a refusal.
    Yes,
}

/// The result of checking a store.
pub struct StoreReport {
    /// The findings.
    pub findings: Vec<Finding>,
    /// The clock of the service.
    pub clock: Option<ClockReading>,
    /// Whether the service answered.
    pub reach: Reach,
    /// The store, if it can be used; only for reading.
    pub store: Option<Arc<dyn Store>>,
    /// Whether a server owns the SQLite file, which can then only be checked through that server.
    pub is_owned: bool,
}

/// The result of checking the queues.
pub struct QueueReport {
    /// The findings.
    pub findings: Vec<Finding>,
    /// The clock of the service.
    pub clock: Option<ClockReading>,
    /// Whether the service answered.
    pub reach: Reach,
    /// The visibility timeout of received messages, if other processes use it too.
    pub visibility_timeout: Option<Duration>,
}

impl StoreReport {
    fn new(reach: Reach, findings: Vec<Finding>) -> Self {
        Self {
            findings,
            clock: None,
            reach,
            store: None,
            is_owned: false,
        }
    }
}

impl QueueReport {
    fn new(reach: Reach, findings: Vec<Finding>) -> Self {
        Self {
            findings,
            clock: None,
            reach,
            visibility_timeout: None,
        }
    }
}

/// Checks a store.
#[cfg_attr(
    not(feature = "aws"),
    expect(
        clippy::unused_async,
        unused_variables,
        reason = "the same signature in both builds"
    )
)]
pub async fn check_store(address: &StoreAddress, context: &DoctorContext) -> StoreReport {
    match address {
        StoreAddress::Sqlite(options) => file::check(options),
        #[cfg(feature = "aws")]
        StoreAddress::DynamoDb(options) => Box::pin(table::check(options, context)).await,
    }
}

/// Checks the queues. `jobs` are the stored jobs, if they are known.
#[cfg_attr(
    not(feature = "aws"),
    expect(
        clippy::unused_async,
        unused_variables,
        reason = "the same signature in both builds"
    )
)]
pub async fn check_queue(
    address: &QueueAddress,
    jobs: Option<&[JobName]>,
    context: &DoctorContext,
) -> QueueReport {
    match address {
        QueueAddress::Local => QueueReport::new(Reach::NotTried, Vec::new()),
        #[cfg(feature = "aws")]
        QueueAddress::Sqs(options) => Box::pin(queues::check(options, jobs, context)).await,
    }
}
