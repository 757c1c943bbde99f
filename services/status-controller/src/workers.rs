//! Who is there.
//!
//! Silence is measured by this process alone, with a clock that never jumps: comparing another host's wall clock with
//! ours would forget live workers. Time in which this process was not there does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_api::{Alive, Registration};
use dueline_domain::{Timestamp, WorkerId};
use dueline_ports::{StoreError, WorkerRecord};
use tokio::time::Instant;

use crate::{StatusController, metrics};

/// Shortest time between two writes of one worker's record.
const STORE_EVERY_MIN: Duration = Duration::from_secs(4);

/// Workers this process has heard of, from themselves or by their record.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<BTreeMap<WorkerId, Entry>>);

#[derive(Debug)]
struct Entry {
    record: WorkerRecord,
    /// When a sign of life was last seen.
    heard: Instant,
    /// When this process last stored the record; `None` when another one did.
    stored: Option<Instant>,
    /// The time of the latest sign of life that the store is known to have.
    seen_at_in_store: Option<Timestamp>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn knows(&self, worker: &WorkerId) -> bool {
        self.lock().contains_key(worker)
    }

    /// Takes note of a sign of life; answers the record if it should be stored.
    fn see(
        &self,
        worker: Registration,
        now: Timestamp,
        store_every: Duration,
    ) -> Option<WorkerRecord> {
        let mut entries = self.lock();
        let known = entries.get(&worker.worker);
        let record = WorkerRecord {
            id: worker.worker,
            kind: "executor".into(),
            jobs: worker.jobs,
            handlers: worker.handlers,
            concurrency: worker.concurrency,
            embedded: worker.embedded,
            started_at: known.map_or(now, |entry| entry.record.started_at),
            seen_at: now,
        };
        let stored = known.and_then(|entry| entry.stored);
        let seen_at_in_store = known.and_then(|entry| entry.seen_at_in_store);
        let is_fresh = stored.is_some_and(|stored| stored.elapsed() < store_every)
            && known.is_some_and(|entry| is_same_but_for_time(&entry.record, &record));
        let heard = Instant::now();
        let id = record.id.clone();
        let to_store = (!is_fresh).then(|| record.clone());
        let entry = Entry {
            record,
            heard,
            stored,
            seen_at_in_store,
        };
        entries.insert(id, entry);
        to_store
    }

    /// The record of a worker is durable.
    fn stored(&self, worker: &WorkerId, seen_at: Timestamp) {
        if let Some(entry) = self.lock().get_mut(worker) {
            entry.stored = Some(Instant::now());
            entry.seen_at_in_store = Some(seen_at);
        }
    }

    /// Learns what is in the store: a record that has changed since is a sign of life given to another process, and one
    /// that is gone belongs to a worker that said goodbye to another process.
    fn learn(&self, records: Vec<WorkerRecord>) {
        let heard = Instant::now();
        let mut entries = self.lock();
        let there: BTreeSet<_> = records.iter().map(|record| &record.id).collect();
        entries.retain(|id, entry| entry.seen_at_in_store.is_none() || there.contains(id));
        for record in records {
            let seen_at_in_store = Some(record.seen_at);
            let known = entries.get(&record.id);
            if known.is_some_and(|entry| entry.seen_at_in_store == seen_at_in_store) {
                continue;
            }
            let id = record.id.clone();
            let entry = Entry {
                record,
                heard,
                stored: None,
                seen_at_in_store,
            };
            entries.insert(id, entry);
        }
    }

    /// Workers that were silent for `limit`.
    fn silent_for(&self, limit: Duration) -> Vec<WorkerRecord> {
        let entries = self.lock();
        let silent = entries
            .values()
            .filter(|entry| entry.heard.elapsed() >= limit);
        silent.map(|entry| entry.record.clone()).collect()
    }

    fn remove(&self, worker: &WorkerId) {
        self.lock().remove(worker);
    }
}

fn is_same_but_for_time(old: &WorkerRecord, new: &WorkerRecord) -> bool {
    let details = |record: &WorkerRecord| (record.concurrency, record.embedded);
    details(old) == details(new) && old.jobs == new.jobs && old.handlers == new.handlers
}

impl StatusController {
    /// Registers or renews a worker.
    pub(crate) async fn see_worker(&self, worker: Registration) -> Result<Alive, StoreError> {
        let store = &self.deps.store;
        if !self.registry.knows(&worker.worker) {
            // It may have registered before a restart of this process; then it keeps its start.
            self.registry.learn(store.workers().await?);
        }
        let interval = self.config.interval;
        let now = self.deps.clock.now();
        // Signs of life are kept in memory and stored now and then: a list of workers is worth no write per second.
        if let Some(record) = self
            .registry
            .see(worker, now, (interval * 2).max(STORE_EVERY_MIN))
        {
            let id = record.id.clone();
            store.put_workers(vec![record]).await?;
            self.registry.stored(&id, now);
        }
        let claims_start = self.config.claims_start;
        Ok(Alive {
            interval,
            claims_start,
        })
    }

    /// Takes a worker off the list.
    pub(crate) async fn remove_worker(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let removed = self.deps.store.remove_workers(vec![worker.clone()]).await;
        if removed.is_ok() {
            self.registry.remove(worker);
        }
        removed
    }

    /// Takes workers off the list that were silent for too long. Their tasks are governed by their leases, except
    /// those of workers inside this very process, whose silence is no network's fault.
    pub(crate) async fn forget_silent_workers(&self) -> Result<(), StoreError> {
        self.registry.learn(self.deps.store.workers().await?);
        let silent = self.registry.silent_for(self.config.worker_forgotten_after);
        let mut failed = None;
        for record in &silent {
            match self.forget(record).await {
                Ok(()) => {
                    tracing::warn!(worker.id = %record.id, "worker was silent for too long and is forgotten");
                    metrics::count_forgotten(1);
                }
                // The others are forgotten all the same, and this one the next time.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn forget(&self, record: &WorkerRecord) -> Result<(), StoreError> {
        if record.embedded {
            self.hand_back(&record.id).await?;
        }
        self.remove_worker(&record.id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_said_goodbye_elsewhere_is_not_waited_for() {
        let (registry, now, second) = (
            Registry::default(),
            Timestamp::EPOCH,
            Duration::from_secs(1),
        );
        let worker = |name: &str| WorkerId::new(name, 1).expect("a worker");
        for name in ["left", "stays", "new"] {
            let registration = Registration {
                worker: worker(name),
                jobs: Vec::new(),
                handlers: Vec::new(),
                concurrency: 1,
                embedded: false,
            };
            registry.see(registration, now, second);
        }
        // The record of the newest one is still on its way to the store.
        registry.stored(&worker("left"), now);
        registry.stored(&worker("stays"), now);
        let mut records = registry.silent_for(Duration::ZERO);
        records.retain(|record| record.id == worker("stays"));
        registry.learn(records);
        let known = ["left", "stays", "new"].map(|name| registry.knows(&worker(name)));
        assert_eq!(known, [false, true, true]);
    }
}
