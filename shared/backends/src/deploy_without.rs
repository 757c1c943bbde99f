//! The functions of `deploy` in a build without AWS, where no resources have to be created.

use std::time::Duration;

use crate::{BackendError, QueueAddress, StoreAddress};

/// A planned or completed change, or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The table or queue.
    pub what: String,
    /// The description.
    pub text: String,
    /// Whether something is changed.
    pub changes: bool,
}

/// What [`set_up`] would do: nothing, because opening a SQLite file creates it.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn plan(_: &StoreAddress, _: &QueueAddress) -> Result<Vec<Action>, BackendError> {
    Ok(Vec::new())
}

/// Does nothing, because opening a SQLite file creates it.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn set_up(_: &StoreAddress, _: &QueueAddress) -> Result<Vec<Action>, BackendError> {
    Ok(Vec::new())
}

/// Refuses URIs that this build does not support.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn create_new(store: &str, queue: &str) -> Result<(), BackendError> {
    StoreAddress::parse(store)?;
    QueueAddress::parse(queue).map(drop)
}

/// Does nothing.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn remove(_: &str, _: &str, _: bool) -> Result<Vec<Action>, BackendError> {
    Ok(Vec::new())
}

/// Returns `None`, because there is no table.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn ceiling(_: &str, _: u32, _: Duration) -> Result<Option<f64>, BackendError> {
    Ok(None)
}
