//! The registered workers, as this process knows them.
//!
//! Each process measures the time since a worker's last renewal by itself, on its monotonic clock. Comparing the wall
//! clocks of different hosts could expire live workers. The time before this process started does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_api::Registration;
use dueline_domain::{Timestamp, WorkerId};
use dueline_ports::{ProcessKind, WorkerRecord};
use tokio::time::Instant;

/// The workers that registered with this process, and those with a record in the store.
#[derive(Debug, Default)]
pub(crate) struct WorkerRegistry(Mutex<BTreeMap<WorkerId, WorkerEntry>>);

#[derive(Debug)]
struct WorkerEntry {
    record: WorkerRecord,
    /// When this process last noticed a renewal of the registration.
    renewed_at: Instant,
    /// When this process last stored the record; `None` if another process stored it.
    stored: Option<Instant>,
    /// The `seen_at` of the record in the store, as far as this process knows.
    seen_at_in_store: Option<Timestamp>,
}

impl WorkerRegistry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, WorkerEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, worker: &WorkerId) -> bool {
        self.lock().contains_key(worker)
    }

    /// Renews a registration. Returns the record if it should be stored.
    pub(crate) fn renew(
        &self,
        worker: Registration,
        now: Timestamp,
        store_every: Duration,
    ) -> Option<WorkerRecord> {
        let mut entries = self.lock();
        let known = entries.get(&worker.worker);
        let record = WorkerRecord {
            id: worker.worker,
            kind: worker.kind.name().into(),
            jobs: worker.jobs,
            handlers: worker.handlers,
            concurrency: worker.concurrency,
            embedded: worker.embedded,
            metadata: worker.metadata,
            started_at: known.map_or(now, |entry| entry.record.started_at),
            seen_at: now,
        };
        let stored = known.and_then(|entry| entry.stored);
        let seen_at_in_store = known.and_then(|entry| entry.seen_at_in_store);
        let is_fresh = stored.is_some_and(|stored| stored.elapsed() < store_every)
            && known.is_some_and(|entry| is_same_but_for_time(&entry.record, &record));
        let id = record.id.clone();
        let to_store = (!is_fresh).then(|| record.clone());
        let entry = WorkerEntry {
            record,
            renewed_at: Instant::now(),
            stored,
            seen_at_in_store,
        };
        entries.insert(id, entry);
        to_store
    }

    /// Notes that the record of a worker is stored.
    pub(crate) fn set_stored(&self, worker: &WorkerId, seen_at: Timestamp) {
        if let Some(entry) = self.lock().get_mut(worker) {
            entry.stored = Some(Instant::now());
            entry.seen_at_in_store = Some(seen_at);
        }
    }

    /// Merges the records of the store. A changed record means that the worker has renewed its registration with
    /// another process. A missing record means that the worker has deregistered from another process, or has expired
    /// there.
    pub(crate) fn merge(&self, records: Vec<WorkerRecord>) {
        let renewed_at = Instant::now();
        let mut entries = self.lock();
        let in_store: BTreeSet<_> = records.iter().map(|record| &record.id).collect();
        entries.retain(|id, entry| entry.seen_at_in_store.is_none() || in_store.contains(id));
        for record in records {
            let seen_at_in_store = Some(record.seen_at);
            let known = entries.get(&record.id);
            if known.is_some_and(|entry| entry.seen_at_in_store == seen_at_in_store) {
                continue;
            }
            let id = record.id.clone();
            let entry = WorkerEntry {
                record,
                renewed_at,
                stored: None,
                seen_at_in_store,
            };
            entries.insert(id, entry);
        }
    }

    /// Workers whose registration was not renewed for `timeout`.
    pub(crate) fn expired(&self, timeout: Duration) -> Vec<WorkerRecord> {
        let entries = self.lock();
        // The services of the process that owns the store live as long as this one, and renew nothing.
        let lasts = |record: &WorkerRecord| record.embedded && !is_executor(record);
        let expired = entries
            .values()
            .filter(|entry| !lasts(&entry.record) && entry.renewed_at.elapsed() >= timeout);
        expired.map(|entry| entry.record.clone()).collect()
    }

    pub(crate) fn remove(&self, worker: &WorkerId) {
        self.lock().remove(worker);
    }
}

/// Whether a record is of a process that owns tasks.
pub(crate) fn is_executor(record: &WorkerRecord) -> bool {
    *record.kind == *ProcessKind::Executor.name()
}

fn is_same_but_for_time(old: &WorkerRecord, new: &WorkerRecord) -> bool {
    let details = |record: &WorkerRecord| (record.concurrency, record.embedded);
    details(old) == details(new)
        && old.jobs == new.jobs
        && old.handlers == new.handlers
        && old.kind == new.kind
        && old.metadata == new.metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_deregistered_from_another_process_is_removed() {
        let (registry, now, second) = (
            WorkerRegistry::default(),
            Timestamp::EPOCH,
            Duration::from_secs(1),
        );
        let worker = |name: &str| WorkerId::new(name, 1).expect("a worker id");
        for name in ["gone", "stays", "new"] {
            let registration = Registration {
                worker: worker(name),
                jobs: Vec::new(),
                handlers: Vec::new(),
                concurrency: 1,
                embedded: false,
                kind: ProcessKind::Executor,
                metadata: dueline_ports::Metadata::new(),
            };
            registry.renew(registration, now, second);
        }
        // The record of the new worker is not stored yet.
        registry.set_stored(&worker("gone"), now);
        registry.set_stored(&worker("stays"), now);
        let mut records = registry.expired(Duration::ZERO);
        records.retain(|record| record.id == worker("stays"));
        registry.merge(records);
        let known = ["gone", "stays", "new"].map(|name| registry.contains(&worker(name)));
        assert_eq!(known, [false, true, true]);
    }
}
