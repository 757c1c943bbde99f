//! Worker records.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::WorkerId;
use dueline_ports::{StoreError, WorkerRecord};

use crate::{
    attr::{Bad, Item, get_bytes, get_text, need, num, text},
    calls::{Ask, For, Key},
    schema,
    store::Inner,
};

/// The record as JSON.
const RECORD: &str = "j";
/// DynamoDB removes what nobody renewed for this long.
const KEPT_FOR: Duration = Duration::from_secs(86_400);

fn key(id: &WorkerId) -> Key {
    Key::new(schema::WORKERS, id.as_str())
}

impl Inner {
    pub(crate) async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        // One call must not name an item twice; the last record of a worker counts.
        let last: BTreeMap<_, _> = workers.iter().map(|record| (&record.id, record)).collect();
        let items = last.values().map(|record| {
            let mut item = key(&record.id).item();
            item.insert(RECORD.into(), text(dueline_records::worker_to_json(record)));
            let expires_at = record.seen_at.after(KEPT_FOR).millis() / 1_000;
            item.insert(schema::TTL.into(), num(expires_at));
            item
        });
        self.table
            .put_many(For::all("put_workers"), items.collect())
            .await
    }

    pub(crate) async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        let ask = Ask {
            partition: schema::WORKERS,
            consistent: true,
            ..Ask::default()
        };
        let items = self
            .table
            .query_all(For::all("workers"), ask, usize::MAX)
            .await?;
        let mut workers = Vec::with_capacity(items.len());
        for item in &items {
            match worker(item) {
                Ok(record) => workers.push(record),
                // It does not hide the others.
                Err(error) => tracing::error!(%error, "unreadable worker record"),
            }
        }
        Ok(workers)
    }

    pub(crate) async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        let mut ids = ids;
        ids.sort_unstable();
        ids.dedup();
        let keys: Vec<_> = ids.iter().map(key).collect();
        self.table
            .delete_many(For::all("remove_workers"), &keys)
            .await
    }
}

fn worker(item: &Item) -> Result<WorkerRecord, Bad> {
    let id = need(get_bytes(item, schema::SK)?, schema::SK)?;
    let id = std::str::from_utf8(id).map_err(Bad::new)?;
    let json = need(get_text(item, RECORD)?, RECORD)?;
    dueline_records::worker_from_json(id, json).map_err(Bad::new)
}
