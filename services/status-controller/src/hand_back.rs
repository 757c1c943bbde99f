//! What a worker that is gone still owned goes back to its queue.

use dueline_domain::{Event, OwnerLost, WorkerId};
use dueline_ports::{Command, OwnedTask, StoreError, apply_and_hand_on};

use crate::{StatusController, heartbeats::RunKey, metrics, report::has_moved};

/// Most tasks handed back with one call of the store: a dead worker's tasks must not hold up everybody's.
const BATCH_MAX: usize = 500;

impl StatusController {
    /// Hands on, at once, all that `worker` owns; answers how many tasks that were. Only for workers that cannot
    /// come back: everybody else is governed by leases.
    pub(crate) async fn hand_back(&self, worker: &WorkerId) -> Result<usize, StoreError> {
        let deps = &self.deps;
        let owned = deps.store.owned(deps.clock.now(), Some(worker)).await?;
        let (mut moved, mut failed) = (0, None);
        for batch in owned.chunks(BATCH_MAX) {
            // Whatever is remembered of these runs is void from here on.
            let keys = batch.iter().map(|owned| RunKey {
                id: owned.id,
                token: owned.token,
                job: owned.job.clone(),
            });
            let _writings: Vec<_> = keys.map(|key| self.heartbeats.write(key)).collect();
            let commands = batch.iter().map(|owned| self.owner_lost(owned)).collect();
            let now = deps.clock.now();
            for result in apply_and_hand_on(&*deps.store, &*deps.queue, now, commands).await {
                match result {
                    Ok(applied) => {
                        self.signal(&applied.task);
                        moved += 1;
                    }
                    Err(error) if has_moved(&error) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        metrics::count_owners_lost(moved);
        failed.map_or(Ok(moved), Err)
    }

    fn owner_lost(&self, owned: &OwnedTask) -> Command {
        let rng = &self.deps.rng;
        let lost = OwnerLost {
            token: owned.token,
            next: rng.token(),
            jitter: rng.jitter(),
        };
        Command {
            job: owned.job.clone(),
            id: owned.id,
            event: Event::OwnerLost(lost),
            write: rng.write_id(),
        }
    }
}
