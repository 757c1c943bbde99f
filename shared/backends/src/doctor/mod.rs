//! Looking a deployment over: what is there, what is not as it should be, and how to mend it. Nothing is changed.

mod clock;
mod file;
mod finding;
#[cfg(feature = "aws")]
mod permissions;
#[cfg(feature = "aws")]
mod queues;
#[cfg(feature = "aws")]
mod queues_of_others;
#[cfg(feature = "aws")]
mod table;
#[cfg(feature = "aws")]
mod watch;

use std::{sync::Arc, time::Duration};

use dueline_domain::JobName;
use dueline_ports::{Clock, Store};

pub use clock::ClockReading;
pub use finding::{Finding, State};

use crate::{QueueAddress, StoreAddress};

/// What a look needs to know beside the addresses.
pub struct Look {
    /// The command line that sets this deployment up; it is the mend of much.
    pub setup: String,
    /// This machine's clock.
    pub clock: Arc<dyn Clock>,
}

/// Whether somebody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nobody was asked.
    NotTried,
    /// No answer.
    No,
    /// An answer, if only a refusal.
    Yes,
}

/// What was seen of a store.
pub struct StoreReport {
    /// What is as it should be, and what is not.
    pub findings: Vec<Finding>,
    /// The clock of the service.
    pub clock: Option<ClockReading>,
    /// Whether it answered.
    pub reach: Reach,
    /// The store, if it can be used. It is only to be read from.
    pub store: Option<Arc<dyn Store>>,
    /// Whether a server owns the file, which then is only seen through that server.
    pub is_owned: bool,
}

/// What was seen of the queues.
pub struct QueueReport {
    /// What is as it should be, and what is not.
    pub findings: Vec<Finding>,
    /// The clock of the service.
    pub clock: Option<ClockReading>,
    /// Whether it answered.
    pub reach: Reach,
    /// How long a received message stays invisible, where that is set for other processes too.
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

/// Looks a store over.
#[cfg_attr(
    not(feature = "aws"),
    expect(
        clippy::unused_async,
        unused_variables,
        reason = "the same signature in both builds"
    )
)]
pub async fn look_at_store(address: &StoreAddress, look: &Look) -> StoreReport {
    match address {
        StoreAddress::Sqlite(options) => file::look_at(options),
        #[cfg(feature = "aws")]
        StoreAddress::DynamoDb(options) => Box::pin(table::look_at(options, look)).await,
    }
}

/// Looks the queues over; `jobs` are those that the store knows, if that can be told.
#[cfg_attr(
    not(feature = "aws"),
    expect(
        clippy::unused_async,
        unused_variables,
        reason = "the same signature in both builds"
    )
)]
pub async fn look_at_queue(
    address: &QueueAddress,
    jobs: Option<&[JobName]>,
    look: &Look,
) -> QueueReport {
    match address {
        QueueAddress::Local => QueueReport::new(Reach::NotTried, Vec::new()),
        #[cfg(feature = "aws")]
        QueueAddress::Sqs(options) => Box::pin(queues::look_at(options, jobs, look)).await,
    }
}
