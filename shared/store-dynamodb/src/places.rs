//! Places of jobs that limit how many of their tasks run at once: one item for each such job, with the tasks that hold them.
//!
//! Several processes enqueue tasks, so no count of this process would be right. A task gets its place before it is enqueued,
//! by compare-and-set, and nothing is written when it ends: its place is taken away when another task needs one, after a
//! read of the tasks that hold one. A task without a limit costs nothing, one with a limit a write unit for each started
//! kibibyte of places, which is some 35 tasks, shared by the tasks that get their places together.

use std::collections::HashMap;

use dueline_domain::{StateKind, TaskId, Timestamp};
use dueline_ports::{StoreError, TakePlaces};

use crate::{
    attr::{InvalidData, bytes, get_bytes},
    calls::{CallContext, ConditionalOutcome, ItemKey, WriteCondition},
    row,
    schema::{self, JobPartitions},
    store::DynamoStore,
};

/// The tasks that hold places.
const HOLDERS: &str = "pl";
/// Length of one holder: the id of the task, its trigger time, and when it got the place.
const HOLDER_BYTES: usize = 16 + 6 + 6;
/// Holders that are read at once to see whether they still run. The next ones are read only when many of these do not.
const CHECKED_AT_ONCE: usize = 100;
/// Tries of one call, each after another process was faster.
const TRIES_MAX: usize = 4;

/// A task that holds a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    id: TaskId,
    /// Its trigger time when it got the place. A task that is not enqueued yet still has it.
    trigger_at: Timestamp,
    since: Timestamp,
}

impl DynamoStore {
    pub(crate) async fn take_places(&self, take: TakePlaces) -> Result<Vec<TaskId>, StoreError> {
        let jobs = self.jobs(false).await?;
        let jobs = self.jobs_including(jobs, &take.job).await?;
        let partitions = &jobs.open(&take.job)?.partitions;
        let context = CallContext::of_job(take.job.as_str(), "take_places");
        let key = ItemKey::new(partitions.quota(), "places");
        for _ in 0..TRIES_MAX {
            let stored = self.table.get(context, &key, true).await?;
            let corrupt =
                |invalid: InvalidData| invalid.into_error(format!("places of '{}'", take.job));
            let text = stored.as_ref().map(|item| get_bytes(item, HOLDERS));
            let text = text.transpose().map_err(corrupt)?.flatten();
            let before = decode(text.unwrap_or_default()).map_err(corrupt)?;

            let mut holders = before.clone();
            // A repeated call for the same tasks renews their places.
            holders.retain(|holder| !take.tasks.iter().any(|(id, _)| *id == holder.id));
            if holders.len() + take.tasks.len() > take.limit_len() {
                self.remove_ended(context, partitions, &mut holders, &take)
                    .await?;
            }
            let free = take.limit_len().saturating_sub(holders.len());
            let granted = &take.tasks[..take.tasks.len().min(free)];
            holders.extend(granted.iter().map(|(id, trigger_at)| Holder {
                id: *id,
                trigger_at: *trigger_at,
                since: take.now,
            }));
            if granted.is_empty() && holders.len() == before.len() {
                return Ok(Vec::new());
            }
            let mut item = key.item();
            item.insert(HOLDERS.into(), bytes(encode(&holders)));
            let condition = text.map_or(WriteCondition::Absent, |text| {
                WriteCondition::Is(HOLDERS, bytes(text))
            });
            match self.table.put(context, item, Some(condition)).await? {
                ConditionalOutcome::Done => return Ok(granted.iter().map(|(id, _)| *id).collect()),
                // Another process was faster, or the SDK has repeated the call by itself; the next try finds its places.
                ConditionalOutcome::Refused(_) => {}
            }
        }
        Ok(Vec::new())
    }

    /// Takes the places of tasks that do not run any more. Where there are more than are read at once, each call begins
    /// with others.
    async fn remove_ended(
        &self,
        context: CallContext<'_>,
        partitions: &JobPartitions,
        holders: &mut Vec<Holder>,
        take: &TakePlaces,
    ) -> Result<(), StoreError> {
        if holders.len() > CHECKED_AT_ONCE {
            let begin = u64::try_from(take.now.millis()).unwrap_or(0) % holders.len() as u64;
            holders.rotate_left(usize::try_from(begin).unwrap_or(0));
        }
        let (mut kept, mut rest) = (Vec::new(), &holders[..]);
        while !rest.is_empty() {
            let checked;
            (checked, rest) = rest.split_at(CHECKED_AT_ONCE.min(rest.len()));
            let keys = checked
                .iter()
                .map(|holder| ItemKey::new(partitions.of_task(&holder.id), holder.id.as_bytes()));
            let keys: Vec<_> = keys.collect();
            let items = self
                .table
                .get_many(context, &keys, row::STATE_AND_TRIGGER, true)
                .await?;
            let mut found = HashMap::new();
            for item in items {
                let key = get_bytes(&item, schema::SK).ok().flatten();
                let id = key.and_then(|key| <[u8; 16]>::try_from(key).ok());
                if let (Some(id), Ok(read)) = (id, row::state_and_trigger(&item)) {
                    found.insert(TaskId::from_bytes(id), read);
                }
            }
            let mut ended = 0;
            for holder in checked {
                if holder.still_runs(found.get(&holder.id).copied(), take.now) {
                    kept.push(*holder);
                } else {
                    ended += 1;
                }
            }
            if ended * 2 < checked.len() {
                break;
            }
        }
        kept.extend_from_slice(rest);
        *holders = kept;
        Ok(())
    }
}

impl Holder {
    /// Whether the place is still needed by the task as it was read now.
    fn still_runs(&self, read: Option<(StateKind, Option<Timestamp>)>, now: Timestamp) -> bool {
        match read {
            None => false,
            Some((kind, _)) if kind.is_in_flight() => true,
            Some((kind, _)) if kind.is_final() => false,
            // It is not enqueued yet, or waits for another try since.
            Some((_, trigger_at)) => {
                trigger_at == Some(self.trigger_at) && now.since(self.since) < TakePlaces::LIFETIME
            }
        }
    }
}

fn encode(holders: &[Holder]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(holders.len() * HOLDER_BYTES);
    for holder in holders {
        bytes.extend(holder.id.as_bytes());
        for time in [holder.trigger_at, holder.since] {
            bytes.extend(&time.millis().to_be_bytes()[2..]);
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Result<Vec<Holder>, InvalidData> {
    let invalid = || InvalidData::new(format!("{} bytes of places", bytes.len()));
    let chunks = bytes.chunks(HOLDER_BYTES).map(|chunk| {
        let (id, times) = chunk.split_first_chunk::<16>()?;
        let (trigger_at, since) = times.split_first_chunk::<6>()?;
        let since = <[u8; 6]>::try_from(since).ok()?;
        let time = |bytes: &[u8; 6]| {
            let mut millis = [0; 8];
            millis[2..].copy_from_slice(bytes);
            Timestamp::clamped(i64::from_be_bytes(millis))
        };
        Some(Holder {
            id: TaskId::from_bytes(*id),
            trigger_at: time(trigger_at),
            since: time(&since),
        })
    });
    chunks.collect::<Option<_>>().ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> Holder {
        Holder {
            id: TaskId::from_bytes([7; 16]),
            trigger_at: Timestamp::clamped(1_800_000_000_123),
            since: Timestamp::clamped(5),
        }
    }

    #[test]
    fn holders_survive_the_way_out_and_back_in() {
        let holders = vec![holder(); 3];
        assert_eq!(decode(&encode(&holders)).unwrap(), holders);
        assert_eq!(decode(&[]).unwrap(), []);
        assert!(decode(&encode(&holders)[1..]).is_err());
    }

    #[test]
    fn a_place_is_free_when_its_task_runs_no_more() {
        let (holder, now) = (holder(), Timestamp::clamped(1_000));
        let seen = Some(holder.trigger_at);
        let later = Some(holder.trigger_at.after(TakePlaces::LIFETIME));
        for (read, expected) in [
            (None, false),
            (Some((StateKind::Enqueued, None)), true),
            (Some((StateKind::Processing, later)), true),
            (Some((StateKind::Succeeded, None)), false),
            (Some((StateKind::New, seen)), true),
            (Some((StateKind::Retriable, later)), false),
        ] {
            assert_eq!(holder.still_runs(read, now), expected, "{read:?}");
        }
        let lapsed = holder.since.after(TakePlaces::LIFETIME);
        assert!(!holder.still_runs(Some((StateKind::New, seen)), lapsed));
    }
}
