//! Worker records.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::WorkerId;
use dueline_ports::{StoreError, WorkerRecord};

use crate::{
    attr::{InvalidData, Item, get_bytes, get_text, num, required, text},
    calls::{CallContext, ItemKey, QueryRequest},
    schema,
    store::DynamoStore,
};

/// The record as JSON.
const RECORD: &str = "j";
/// DynamoDB deletes a record that was not renewed for this long.
const EXPIRES_AFTER: Duration = Duration::from_secs(86_400);

fn key(id: &WorkerId) -> ItemKey {
    ItemKey::new(schema::WORKERS, id.as_str())
}

impl DynamoStore {
    pub(crate) async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        // A batch must not contain an item twice; the last record of a worker counts.
        let last: BTreeMap<_, _> = workers.iter().map(|record| (&record.id, record)).collect();
        let items = last.values().map(|record| {
            let mut item = key(&record.id).item();
            item.insert(RECORD.into(), text(dueline_records::worker_to_json(record)));
            let expires_at = record.seen_at.after(EXPIRES_AFTER).millis() / 1_000;
            item.insert(schema::TTL.into(), num(expires_at));
            item
        });
        self.table
            .put_many(CallContext::of_table("put_workers"), items.collect())
            .await
    }

    pub(crate) async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        let request = QueryRequest {
            partition: schema::WORKERS,
            consistent: true,
            ..QueryRequest::default()
        };
        let items = self
            .table
            .query_all(CallContext::of_table("workers"), request, usize::MAX)
            .await?;
        let mut workers = Vec::with_capacity(items.len());
        for item in &items {
            match worker(item) {
                Ok(record) => workers.push(record),
                // An unreadable record does not hide the others.
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
            .delete_many(CallContext::of_table("remove_workers"), &keys)
            .await
    }
}

fn worker(item: &Item) -> Result<WorkerRecord, InvalidData> {
    let id = required(get_bytes(item, schema::SK)?, schema::SK)?;
    let id = std::str::from_utf8(id).map_err(InvalidData::new)?;
    let json = required(get_text(item, RECORD)?, RECORD)?;
    dueline_records::worker_from_json(id, json).map_err(InvalidData::new)
}
