//! How the process is.

use async_trait::async_trait;

/// Tells how the process is, for load balancers and people.
#[async_trait]
pub trait Health: Send + Sync + 'static {
    /// What an acknowledged write has survived, in words: the durability setting of the store.
    fn durability(&self) -> String;

    /// Whether calls can be served now, or why not.
    async fn ready(&self) -> Result<(), String>;
}
