//! Runs the store conformance suite on the store in memory.

use std::sync::Arc;

use dueline_ports::{Store, fakes::MemoryStore};

async fn fresh() -> (Arc<dyn Store>, ()) {
    (Arc::new(MemoryStore::new()), ())
}

dueline_ports::store_conformance!(fresh);
