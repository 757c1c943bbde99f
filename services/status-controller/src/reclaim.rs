//! Reclaims the tasks of a worker that is gone.

use dueline_domain::{Event, Reclaim, WorkerId};
use dueline_ports::{Command, OwnedTask, StoreError};
use dueline_runtime::log_transition;

use crate::{StatusControllerService, lease_cache::RunKey, metrics, report::is_stale};

/// Most tasks reclaimed with one call to the store, so that the tasks of a dead worker do not delay those of others.
const BATCH_MAX: usize = 500;

impl StatusControllerService {
    /// Reclaims all tasks that `worker` owns, at once, and returns how many. Only for workers that cannot come back:
    /// the tasks of other workers are reclaimed when their leases end.
    pub(crate) async fn reclaim_all(&self, worker: &WorkerId) -> Result<usize, StoreError> {
        let now = self.deps.clock.now();
        let owned = self.deps.store.owned(now, Some(worker)).await?;
        self.reclaim_each(&owned).await
    }

    /// Reclaims these tasks, and returns how many had not moved.
    pub(crate) async fn reclaim_each(&self, owned: &[OwnedTask]) -> Result<usize, StoreError> {
        let deps = &self.deps;
        let (mut reclaimed, mut failed) = (0, None);
        for batch in owned.chunks(BATCH_MAX) {
            // Removes the cached leases of these runs.
            let keys = batch.iter().map(RunKey::of);
            let _lease_writes: Vec<_> = keys.map(|key| self.leases.begin_write(key)).collect();
            let commands = batch.iter().map(|owned| self.reclaim(owned)).collect();
            let now = deps.clock.now();
            let results = deps.effects().apply(&*deps.store, now, commands).await;
            self.discard_staged(&results).await;
            for (owned, result) in batch.iter().zip(results) {
                match result {
                    Ok(applied) => {
                        log_transition(Some(owned.kind), &applied.task);
                        reclaimed += 1;
                    }
                    Err(error) if is_stale(&error) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        metrics::count_owners_lost(reclaimed);
        failed.map_or(Ok(reclaimed), Err)
    }

    fn reclaim(&self, owned: &OwnedTask) -> Command {
        let rng = &self.deps.rng;
        let reclaim = Reclaim {
            token: owned.token,
            next: rng.token(),
            jitter: rng.jitter(),
        };
        Command {
            job: owned.job.clone(),
            id: owned.id,
            event: Event::Reclaim(reclaim),
            write: rng.write_id(),
        }
    }
}
