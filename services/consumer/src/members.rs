//! Consumers share the due index: each registers, sends heartbeats, and reads only its own share.
//!
//! Correctness does not depend on the shares, because every move is a compare-and-set. When in doubt, a consumer
//! therefore reads too much rather than too little: a member counts only after its record was seen to change, and a
//! consumer without a share reads everything. This process measures silence with its own monotonic clock; another
//! host's wall clock is only compared with itself.

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

/// The kind of worker record by which consumers find each other.
pub const KIND: &str = "consumer";
/// A member that was silent for this many intervals is gone.
const SILENT_INTERVALS: u32 = 3;

/// The share of this consumer, for the scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurrentShare(Arc<Mutex<Option<Share>>>);

impl CurrentShare {
    /// `None` while this consumer reads everything.
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

/// Sends heartbeats of this consumer and follows the other members, until the intake is stopped.
pub(crate) async fn run(config: Config, deps: Deps, share: CurrentShare, shutdown: Shutdown) {
    let Some(sharing) = config.sharing else {
        return shutdown.intake_stopped().await;
    };
    let mut members = ConsumerMembers::new(sharing.me.clone(), sharing.interval);
    let mut ticks = interval(sharing.interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started_at = deps.clock.now();
    loop {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => break,
            _ = ticks.tick() => {}
        }
        match heartbeat(&deps, &sharing.me, started_at).await {
            Ok(records) => {
                members.update(&records, Instant::now());
                let current = members.share(Instant::now());
                metrics::gauge!("dueline_consumer_share")
                    .set(current.as_ref().map_or(1.0, Share::fraction));
                share.set(current);
            }
            // The previous share stays in use. Other consumers read it, too, once they miss this one's heartbeats.
            Err(error) => tracing::warn!(%error, "failed to send the heartbeat of this consumer"),
        }
    }
    // Deregistering lets other consumers take over at once. Without it they do so after three silent intervals.
    if let Err(error) = deps.store.remove_workers(vec![sharing.me]).await {
        tracing::debug!(%error, "failed to deregister this consumer");
    }
}

async fn heartbeat(
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
        metadata: dueline_ports::Metadata::new(),
    };
    deps.store.put_workers(vec![record]).await?;
    deps.store.workers().await
}

/// The other consumers, as known to this one.
struct ConsumerMembers {
    me: WorkerId,
    silent_after: Duration,
    others: BTreeMap<WorkerId, MemberState>,
}

struct MemberState {
    seen_at: Timestamp,
    /// When this process last saw the record change; `None` until then.
    changed: Option<Instant>,
}

impl ConsumerMembers {
    fn new(me: WorkerId, interval: Duration) -> Self {
        Self {
            me,
            silent_after: interval.saturating_mul(SILENT_INTERVALS),
            others: BTreeMap::new(),
        }
    }

    fn update(&mut self, records: &[WorkerRecord], now: Instant) {
        let records: BTreeMap<&WorkerId, Timestamp> = records
            .iter()
            .filter(|record| &*record.kind == KIND && record.id != self.me)
            .map(|record| (&record.id, record.seen_at))
            .collect();
        self.others.retain(|id, _| records.contains_key(id));
        for (id, seen_at) in records {
            match self.others.get_mut(id) {
                Some(state) if state.seen_at != seen_at => {
                    (state.seen_at, state.changed) = (seen_at, Some(now));
                }
                Some(_) => {}
                None => {
                    let changed = None;
                    self.others
                        .insert(id.clone(), MemberState { seen_at, changed });
                }
            }
        }
    }

    /// The share of this consumer; `None` if it is the only one.
    fn share(&self, now: Instant) -> Option<Share> {
        let is_alive = |state: &MemberState| {
            state
                .changed
                .is_some_and(|at| now.saturating_duration_since(at) < self.silent_after)
        };
        let others = self.others.iter().filter(|(_, state)| is_alive(state));
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
            metadata: dueline_ports::Metadata::new(),
        }
    }

    fn fraction(members: &ConsumerMembers, now: Instant) -> f64 {
        members
            .share(now)
            .map_or(1.0, |share| Share::fraction(&share))
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_counts_while_its_record_is_seen_to_change() {
        let second = Duration::from_secs(1);
        let me = record("me", KIND, 0).id;
        let (mut members, start) = (ConsumerMembers::new(me, second), Instant::now());
        // An unchanged record may belong to a dead process, so everything is read.
        members.update(&[record("b", KIND, 5), record("me", KIND, 5)], start);
        assert!(members.share(start).is_none());
        members.update(&[record("b", KIND, 6)], start + second);
        assert!(fraction(&members, start + second) < 1.0);
        // Records of executors do not count.
        members.update(
            &[record("b", KIND, 7), record("x", "executor", 1)],
            start + second * 2,
        );
        members.update(
            &[record("b", KIND, 7), record("x", "executor", 2)],
            start + second * 3,
        );
        assert!(fraction(&members, start + second * 3) < 1.0);
        assert!(
            members.share(start + second * 5).is_none(),
            "three seconds of silence"
        );
        // A member whose record was removed has deregistered.
        members.update(&[record("b", KIND, 8)], start + second * 6);
        assert!(members.share(start + second * 6).is_some());
        members.update(&[], start + second * 6);
        assert!(members.share(start + second * 6).is_none());
    }
}
