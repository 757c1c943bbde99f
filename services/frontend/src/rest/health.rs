//! How the process is.

use std::time::Duration;

use dueline_api::Ready;

/// A change of the connection to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConnection {
    /// Whether it answers since then.
    pub is_up: bool,
    /// How long ago that was.
    pub ago: Duration,
}

/// The health of the process, for load balancers and people.
pub trait Health: Ready {
    /// What an acknowledged write has survived, in words: the durability setting of the store, where there is one.
    fn durability(&self) -> Option<String>;

    /// The latest changes of the connection to the store, oldest first; empty where there is none to lose.
    fn store_connection(&self) -> Vec<StoreConnection> {
        Vec::new()
    }

    /// Problems that do not keep calls from being served, such as a host that cannot run tasks at present.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}
