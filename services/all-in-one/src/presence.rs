//! The services of a process register, so that others see that they are there.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "network")]
use dueline_api::{Registration, StatusController};
use dueline_domain::WorkerId;
use dueline_ports::{Clock, Metadata, ProcessKind, WorkerRecord, WorkerStore};
use dueline_runtime::{Shutdown, incarnation};
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{Role, Roles};

/// How often a process that shares its store says that it is there. A third of the lease: the status controllers remove
/// who was silent for 30 s.
const EVERY: Duration = Duration::from_secs(10);

const fn kind(role: Role) -> ProcessKind {
    match role {
        Role::Frontend => ProcessKind::Frontend,
        Role::Consumer => ProcessKind::Consumer,
        Role::StatusController => ProcessKind::StatusController,
        Role::Controller => ProcessKind::Controller,
    }
}

fn metadata() -> Metadata {
    let version = env!("CARGO_PKG_VERSION");
    let pid = std::process::id().to_string();
    [("version", version), ("pid", &pid)]
        .map(|(name, value)| (name.into(), value.into()))
        .into()
}

/// The records of the services of this process.
pub(crate) struct Presence {
    records: Vec<WorkerRecord>,
}

impl Presence {
    /// Of these services. Consumers of a shared store have records of their own, by which they find each other.
    pub(crate) fn of(roles: &Roles, shared: bool, clock: &dyn Clock) -> Self {
        let (now, incarnation) = (clock.now(), incarnation());
        let present = Role::ALL.into_iter().filter(|role| roles.has(*role));
        let own = present.filter(|role| !(shared && *role == Role::Consumer));
        let record = |role: Role| {
            Some(WorkerRecord {
                // A name of this shape is always legal.
                id: WorkerId::new(kind(role).name(), incarnation).ok()?,
                kind: kind(role).name().into(),
                jobs: Vec::new(),
                handlers: Vec::new(),
                concurrency: 0,
                embedded: !shared,
                metadata: metadata(),
                started_at: now,
                seen_at: now,
            })
        };
        let records = own.filter_map(record).collect();
        Self { records }
    }

    /// Stores the records once. For the process that owns the store: no other process reads the store while it is gone, and the next one
    /// removes them.
    pub(crate) async fn enter(&self, store: &dyn WorkerStore) {
        if let Err(error) = store.put_workers(self.records.clone()).await {
            tracing::warn!(%error, "the services of this process are not listed");
        }
    }

    /// Removes the records.
    pub(crate) async fn leave(&self, store: &dyn WorkerStore) {
        let ids = self.records.iter().map(|record| record.id.clone());
        if let Err(error) = store.remove_workers(ids.collect()).await {
            tracing::debug!(%error, "failed to deregister the services of this process");
        }
    }

    /// Stores the records again and again, until the intake is stopped. For a process that shares its store.
    pub(crate) async fn renew(
        mut self,
        store: Arc<dyn dueline_ports::Store>,
        clock: Arc<dyn Clock>,
        shutdown: Shutdown,
    ) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.intake_stopped() => break,
                _ = ticks.tick() => {}
            }
            for record in &mut self.records {
                record.seen_at = clock.now();
            }
            self.enter(&*store).await;
        }
        self.leave(&*store).await;
    }
}

/// Registers a controller whose status controller is elsewhere, until the intake is stopped.
#[cfg(feature = "network")]
pub(crate) async fn register_controller(status: Arc<dyn StatusController>, shutdown: Shutdown) {
    let Ok(worker) = WorkerId::new(ProcessKind::Controller.name(), incarnation()) else {
        return;
    };
    let registration = Registration {
        worker: worker.clone(),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 0,
        embedded: false,
        kind: ProcessKind::Controller,
        metadata: metadata(),
    };
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => break,
            _ = ticks.tick() => {}
        }
        if let Err(error) = status.register_worker(registration.clone()).await {
            tracing::debug!(%error, "failed to register this controller");
        }
    }
    if let Err(error) = status.deregister_worker(&worker).await {
        tracing::debug!(%error, "failed to deregister this controller");
    }
}
