//! Places of jobs that limit how many of their tasks run at once: one item for each such job, with the tasks that hold them.
//!
//! Several processes enqueue tasks, so no count of this process would be right. A task gets its place before it is enqueued,
//! by compare-and-set, and nothing is written when it ends: its place is taken away when another task needs one, after a
//! read of the tasks that hold one. A task without a limit costs nothing, one with a limit a write unit for each started
//! kibibyte of places, which is some 35 tasks, shared by the tasks that get their places together. In a job with lanes each
//! place has a hash of its lane, so that the places of one lane can be counted.

use std::collections::HashMap;

use dueline_domain::{StateKind, TaskId, Timestamp};
use dueline_ports::{Places, StoreError, TakePlaces};

use crate::{
    attr::{InvalidData, bytes, get_bytes},
    calls::{CallContext, ConditionalOutcome, ItemKey, WriteCondition},
    row,
    schema::{self, JobPartitions, spread},
    store::DynamoStore,
};

/// The tasks that hold places.
const HOLDERS: &str = "pl";
/// Length of one holder: the id of the task, its trigger time, and when it got the place.
const HOLDER_BYTES: usize = 16 + 6 + 6;
/// Length of one holder in a job with lanes: a hash of the lane follows.
const LANE_HOLDER_BYTES: usize = HOLDER_BYTES + 8;
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
    /// The hash of its lane; 0 in a job without lanes.
    lane: u64,
}

impl DynamoStore {
    pub(crate) async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError> {
        let jobs = self.jobs(false).await?;
        let jobs = self.jobs_including(jobs, &take.job).await?;
        let entry = jobs.open(&take.job)?;
        let partitions = &entry.partitions;
        let (name, length) = match entry.job.fair_share {
            Some(_) => ("lane places", LANE_HOLDER_BYTES),
            None => ("places", HOLDER_BYTES),
        };
        let context = CallContext::of_job(take.job.as_str(), "take_places");
        let key = ItemKey::new(partitions.quota(), name);
        for _ in 0..TRIES_MAX {
            let stored = self.table.get(context, &key, true).await?;
            let corrupt =
                |invalid: InvalidData| invalid.into_error(format!("places of '{}'", take.job));
            let text = stored.as_ref().map(|item| get_bytes(item, HOLDERS));
            let text = text.transpose().map_err(corrupt)?.flatten();
            let before = decode(text.unwrap_or_default(), length).map_err(corrupt)?;

            let mut holders = before.clone();
            // A repeated call for the same tasks renews their places.
            holders.retain(|holder| !take.tasks.iter().any(|task| task.id == holder.id));
            let mut enqueued = 0;
            if needs_check(&take, holders.len()) {
                enqueued = self
                    .remove_ended(context, partitions, &mut holders, &take)
                    .await?;
            }
            let room = take.room(holders.len(), enqueued);
            let held_in = |lane: &str| {
                let hash = lane_hash(lane);
                holders.iter().filter(|holder| holder.lane == hash).count()
            };
            let (granted, is_full) = take.grant(room, held_in);
            let places = Places {
                granted: granted.iter().map(|task| task.id).collect(),
                is_full,
                enqueued,
            };
            holders.extend(granted.into_iter().map(|task| Holder {
                id: task.id,
                trigger_at: task.trigger_at,
                since: take.now,
                lane: lane_hash(&task.lane),
            }));
            if places.granted.is_empty() && holders.len() == before.len() {
                return Ok(places);
            }
            let mut item = key.item();
            item.insert(HOLDERS.into(), bytes(encode(&holders, length)));
            let condition = text.map_or(WriteCondition::Absent, |text| {
                WriteCondition::Is(HOLDERS, bytes(text))
            });
            match self.table.put(context, item, Some(condition)).await? {
                ConditionalOutcome::Done => return Ok(places),
                // Another process was faster, or the SDK has repeated the call by itself; the next try finds its places.
                ConditionalOutcome::Refused(_) => {}
            }
        }
        // The next try of the caller is as good as one more here.
        Ok(Places {
            is_full: true,
            ..Places::default()
        })
    }

    /// Takes the places of tasks that do not run any more. Without lanes only some of a large number are read; each call begins
    /// with others. Returns how many of those that were read are enqueued or about to be.
    async fn remove_ended(
        &self,
        context: CallContext<'_>,
        partitions: &JobPartitions,
        holders: &mut Vec<Holder>,
        take: &TakePlaces,
    ) -> Result<usize, StoreError> {
        if holders.len() > CHECKED_AT_ONCE {
            let begin = u64::try_from(take.now.millis()).unwrap_or(0) % holders.len() as u64;
            holders.rotate_left(usize::try_from(begin).unwrap_or(0));
        }
        let (mut kept, mut rest, mut enqueued) = (Vec::new(), &holders[..], 0);
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
                let read = found.get(&holder.id).copied();
                if holder.still_runs(read, take.now) {
                    kept.push(*holder);
                    enqueued += usize::from(!read.is_some_and(|(kind, _)| kind.is_owned()));
                } else {
                    ended += 1;
                }
            }
            if !counts_all(take) && ended * 2 < checked.len() {
                break;
            }
        }
        kept.extend_from_slice(rest);
        *holders = kept;
        Ok(enqueued)
    }
}

/// Whether all tasks that hold places have to be read, because they are counted by lane or state.
const fn counts_all(take: &TakePlaces) -> bool {
    take.lane_limit.is_some() || take.enqueued_max.is_some()
}

/// Whether tasks that hold places have to be read to see whether they still run.
fn needs_check(take: &TakePlaces, holders: usize) -> bool {
    counts_all(take) || take.room(holders, 0) < take.tasks.len()
}

/// The hash of a lane in its places.
fn lane_hash(lane: &str) -> u64 {
    match lane {
        "" => 0,
        lane => spread(lane.as_bytes()),
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

/// The bytes of holders, each of this length.
fn encode(holders: &[Holder], length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(holders.len() * length);
    for holder in holders {
        bytes.extend(holder.id.as_bytes());
        for time in [holder.trigger_at, holder.since] {
            bytes.extend(&time.millis().to_be_bytes()[2..]);
        }
        if length == LANE_HOLDER_BYTES {
            bytes.extend(holder.lane.to_be_bytes());
        }
    }
    bytes
}

fn decode(bytes: &[u8], length: usize) -> Result<Vec<Holder>, InvalidData> {
    let invalid = || InvalidData::new(format!("{} bytes of places", bytes.len()));
    let chunks = bytes.chunks(length).map(|chunk| {
        let (id, rest) = chunk.split_first_chunk::<16>()?;
        let (trigger_at, rest) = rest.split_first_chunk::<6>()?;
        let (since, lane) = rest.split_first_chunk::<6>()?;
        let lane = match length {
            LANE_HOLDER_BYTES => u64::from_be_bytes(lane.try_into().ok()?),
            _ => lane.is_empty().then_some(0)?,
        };
        let time = |bytes: &[u8; 6]| {
            let mut millis = [0; 8];
            millis[2..].copy_from_slice(bytes);
            Timestamp::clamped(i64::from_be_bytes(millis))
        };
        Some(Holder {
            id: TaskId::from_bytes(*id),
            trigger_at: time(trigger_at),
            since: time(since),
            lane,
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
            lane: 0,
        }
    }

    #[test]
    fn holders_survive_the_way_out_and_back_in() {
        let holders = vec![holder(); 3];
        let bytes = encode(&holders, HOLDER_BYTES);
        assert_eq!(decode(&bytes, HOLDER_BYTES).unwrap(), holders);
        assert_eq!(decode(&[], HOLDER_BYTES).unwrap(), []);
        assert!(decode(&bytes[1..], HOLDER_BYTES).is_err());

        let lane = lane_hash("acme");
        let holders = vec![Holder { lane, ..holder() }; 2];
        let bytes = encode(&holders, LANE_HOLDER_BYTES);
        assert_eq!(decode(&bytes, LANE_HOLDER_BYTES).unwrap(), holders);
        assert!(decode(&bytes[1..], LANE_HOLDER_BYTES).is_err());
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
