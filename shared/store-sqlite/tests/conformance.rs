//! The store on SQLite passes the conformance suite of stores, on real files.

use std::sync::Arc;

use dueline_ports::Store;
use dueline_store_sqlite::{SqliteOptions, SqliteStore};

async fn fresh() -> (Arc<dyn Store>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("dueline.db"));
    (Arc::new(SqliteStore::open(options).unwrap()), folder)
}

dueline_ports::store_conformance!(fresh);
