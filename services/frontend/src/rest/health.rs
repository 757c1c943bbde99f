//! How the process is.

use std::time::Duration;

use async_trait::async_trait;

/// A change of the connection to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConnection {
    /// Whether it answers since then.
    pub is_up: bool,
    /// How long ago that was.
    pub ago: Duration,
}

/// Tells how the process is, for load balancers and people.
#[async_trait]
pub trait Health: Send + Sync + 'static {
    /// What an acknowledged write has survived, in words: the durability setting of the store, where there is one.
    fn durability(&self) -> Option<String>;

    /// The latest changes of the connection to the store, oldest first; empty where there is none to lose.
    fn store_connection(&self) -> Vec<StoreConnection> {
        Vec::new()
    }

    /// Whether calls can be served now, or why not.
    async fn ready(&self) -> Result<(), String>;
}
