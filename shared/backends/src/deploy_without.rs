//! Making and removing, in a build that knows of nothing that has to be made.

use std::time::Duration;

use crate::{BackendError, QueueAddress, StoreAddress};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The table or queue.
    pub what: String,
    /// In words.
    pub text: String,
    /// Whether it changes something.
    pub changes: bool,
}

/// What [`set_up`] would do: nothing, a file is made when it is opened.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn plan(_: &StoreAddress, _: &QueueAddress) -> Result<Vec<Action>, BackendError> {
    Ok(Vec::new())
}

/// Nothing, a file is made when it is opened.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn set_up(_: &StoreAddress, _: &QueueAddress) -> Result<Vec<Action>, BackendError> {
    Ok(Vec::new())
}

/// Refuses what this build does not know.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn make_new(store: &str, queue: &str) -> Result<(), BackendError> {
    StoreAddress::parse(store)?;
    QueueAddress::parse(queue).map(drop)
}

/// Nothing.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn remove(_: &str, _: &str, _: bool) -> Result<Vec<Action>, BackendError> {
    Ok(Vec::new())
}

/// Nothing: there is no table.
#[expect(clippy::unused_async, reason = "the same signature in both builds")]
pub async fn ceiling(_: &str, _: u32, _: Duration) -> Result<Option<f64>, BackendError> {
    Ok(None)
}
