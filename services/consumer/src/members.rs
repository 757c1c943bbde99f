//! Consumers share the due partitions: each says that it is there, and reads only its own share.
//!
//! Nothing depends on this for correctness, every move is a compare-and-set. So whoever is in doubt reads too much
//! rather than too little: a member counts only after its record was seen to change, and a consumer without a share
//! reads everything. Silence is measured by this process alone, with a clock that never jumps; another host's wall
//! clock is only compared with itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dueline_domain::{Timestamp, WorkerId};
use dueline_ports::{Share, StoreError, WorkerRecord};
use dueline_runtime::Shutdown;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{Config, Deps};

/// Kind of the record by which consumers find each other.
pub const KIND: &str = "consumer";
/// A member that was silent for this many intervals is gone.
const SILENT_INTERVALS: u32 = 3;

/// What this consumer reads, as the scan sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurrentShare(Arc<Mutex<Option<Share>>>);

impl CurrentShare {
    /// `None` while everything is read.
    pub(crate) fn get(&self) -> Option<Share> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, share: Option<Share>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = share;
    }
}

/// Says again and again that this consumer is there, and follows who else is.
pub(crate) async fn run(config: Config, deps: Deps, share: CurrentShare, shutdown: Shutdown) {
    let Some(sharing) = config.sharing else {
        return shutdown.intake_stopped().await;
    };
    let mut members = Members::new(sharing.me.clone(), sharing.interval);
    let mut ticks = interval(sharing.interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started_at = deps.clock.now();
    loop {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => break,
            _ = ticks.tick() => {}
        }
        match renew(&deps, &sharing.me, started_at).await {
            Ok(records) => {
                members.learn(&records, Instant::now());
                let mine = members.share(Instant::now());
                metrics::gauge!("dueline_consumer_share")
                    .set(mine.as_ref().map_or(1.0, Share::fraction));
                share.set(mine);
            }
            // The share of before stays: others read it as well once they miss us.
            Err(error) => tracing::warn!(%error, "failed to tell other consumers of this one"),
        }
    }
    // So that others take over at once. Who cannot say goodbye is missed soon.
    if let Err(error) = deps.store.remove_workers(vec![sharing.me]).await {
        tracing::debug!(%error, "failed to tell other consumers that this one stops");
    }
}

async fn renew(
    deps: &Deps,
    me: &WorkerId,
    started_at: Timestamp,
) -> Result<Vec<WorkerRecord>, StoreError> {
    let record = WorkerRecord {
        id: me.clone(),
        kind: KIND.into(),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 0,
        embedded: false,
        started_at,
        seen_at: deps.clock.now(),
    };
    deps.store.put_workers(vec![record]).await?;
    deps.store.workers().await
}

/// The other consumers, as this one sees them.
struct Members {
    me: WorkerId,
    silent_after: Duration,
    seen: BTreeMap<WorkerId, Seen>,
}

struct Seen {
    seen_at: Timestamp,
    /// When the record was last seen to change; `None` until it has.
    changed: Option<Instant>,
}

impl Members {
    fn new(me: WorkerId, interval: Duration) -> Self {
        Self {
            me,
            silent_after: interval.saturating_mul(SILENT_INTERVALS),
            seen: BTreeMap::new(),
        }
    }

    fn learn(&mut self, records: &[WorkerRecord], now: Instant) {
        let others: BTreeMap<&WorkerId, Timestamp> = records
            .iter()
            .filter(|record| &*record.kind == KIND && record.id != self.me)
            .map(|record| (&record.id, record.seen_at))
            .collect();
        self.seen.retain(|id, _| others.contains_key(id));
        for (id, seen_at) in others {
            match self.seen.get_mut(id) {
                Some(seen) if seen.seen_at != seen_at => {
                    (seen.seen_at, seen.changed) = (seen_at, Some(now));
                }
                Some(_) => {}
                None => {
                    let changed = None;
                    self.seen.insert(id.clone(), Seen { seen_at, changed });
                }
            }
        }
    }

    /// The share of this consumer; `None` when it is alone.
    fn share(&self, now: Instant) -> Option<Share> {
        let is_there = |seen: &Seen| {
            seen.changed
                .is_some_and(|at| now.saturating_duration_since(at) < self.silent_after)
        };
        let others = self.seen.iter().filter(|(_, seen)| is_there(seen));
        let others: Vec<_> = others.map(|(id, _)| id).collect();
        (!others.is_empty()).then(|| Share::of(&self.me, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, kind: &str, seen_at: i64) -> WorkerRecord {
        WorkerRecord {
            id: WorkerId::new(name, 7).expect("an id"),
            kind: kind.into(),
            jobs: Vec::new(),
            handlers: Vec::new(),
            concurrency: 0,
            embedded: false,
            started_at: Timestamp::EPOCH,
            seen_at: Timestamp::clamped(seen_at),
        }
    }

    fn fraction(members: &Members, now: Instant) -> f64 {
        members
            .share(now)
            .map_or(1.0, |share| Share::fraction(&share))
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_counts_while_its_record_is_seen_to_change() {
        let second = Duration::from_secs(1);
        let me = record("me", KIND, 0).id;
        let (mut members, start) = (Members::new(me, second), Instant::now());
        // A record that does not change may be that of a dead process: everything is read.
        members.learn(&[record("b", KIND, 5), record("me", KIND, 5)], start);
        assert!(members.share(start).is_none());
        members.learn(&[record("b", KIND, 6)], start + second);
        assert!(fraction(&members, start + second) < 1.0);
        // An executor shares nothing.
        members.learn(
            &[record("b", KIND, 7), record("x", "executor", 1)],
            start + second * 2,
        );
        members.learn(
            &[record("b", KIND, 7), record("x", "executor", 2)],
            start + second * 3,
        );
        assert!(fraction(&members, start + second * 3) < 1.0);
        assert!(
            members.share(start + second * 5).is_none(),
            "three seconds of silence"
        );
        // Gone from the list: it said goodbye.
        members.learn(&[record("b", KIND, 8)], start + second * 6);
        assert!(members.share(start + second * 6).is_some());
        members.learn(&[], start + second * 6);
        assert!(members.share(start + second * 6).is_none());
    }
}
