//! The store on DynamoDB passes the conformance suite of stores.

mod kit;

use std::sync::Arc;

use dueline_ports::Store;

async fn fresh() -> (Arc<dyn Store>, ()) {
    (kit::fresh().await, ())
}

dueline_ports::store_conformance!(fresh);
