//! Lanes: waiting tasks of jobs whose fairness keys take turns.
//!
//! The waiting tasks of one key and one priority are a partition of the due index, so that the first ones of each key are read
//! without those of others. Which of these partitions there are says an item for each in the table. It is *touched* before a
//! task gets into the lane: it has the time of the latest touch, by which a reader sees that a lane that was empty may have
//! tasks again. A task that gets into a lane that was touched within the last second does not touch it. The index may lag
//! behind, so a lane is read again and again after a touch, at growing intervals that never end while its item exists.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_domain::{Priority, StateKind, Task, Timestamp};
use dueline_ports::{Lane, LanePage, LaneQuery, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Instant;

use super::{CONCURRENT_SCANS, CheckedTask, ScanResult, due_task};
use crate::{
    attr::{Item, get_num, num},
    calls::{CallContext, ItemChange, ItemKey, QueryRequest, SortRange, WriteCondition},
    jobs::JobEntry,
    schema::JobPartitions,
    store::DynamoStore,
};

/// The time of the latest touch.
const TOUCHED: &str = "t";
/// How long a touch holds for other tasks.
const TOUCH_HOLDS: Duration = Duration::from_secs(1);
/// How often the items of lanes are read; with each thousand lanes, a second less often.
const READ_EVERY: Duration = Duration::from_millis(150);
const READ_EVERY_PER_LANE: Duration = Duration::from_millis(1);
/// How long an empty lane is read with each scan after a touch, and how long the intervals become.
const EAGER: Duration = Duration::from_secs(3);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long after its latest touch the item of an empty lane is deleted.
const UNUSED_AFTER: Duration = Duration::from_secs(86_400);
/// How long a consumer that finds tasks in a lane lets its touch become old, so that the lane does not count as unused.
const RENEW_AFTER: Duration = Duration::from_secs(3_600);
/// Most lanes of a job that are known, and most touches that are remembered.
const LANES_MAX: usize = 100_000;

/// A lane of one priority, in the order in which lanes and their tasks are read.
type LaneName = (Arc<str>, Reverse<i16>);

/// What this process knows of lanes.
#[derive(Debug, Default)]
pub(crate) struct LaneMemory(Mutex<LaneMemoryState>);

#[derive(Debug, Default)]
struct LaneMemoryState {
    /// Latest touches by this process, by partition of the index.
    touches: HashMap<String, Timestamp>,
    /// By partition of the table.
    jobs: HashMap<String, JobLanes>,
}

#[derive(Clone, Debug, Default)]
struct JobLanes {
    read_at: Option<Instant>,
    lanes: BTreeMap<LaneName, KnownLane>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownLane {
    touched: Timestamp,
    /// When the lane is read next.
    read_at: Timestamp,
}

/// The result of reading one lane of one priority.
struct LaneRead {
    name: LaneName,
    tasks: Vec<CheckedTask>,
    next_at: Option<Timestamp>,
}

impl LaneMemory {
    fn lock(&self) -> MutexGuard<'_, LaneMemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownLane {
    /// The lane after a read that found tasks, or none until `next_at`.
    fn after_read(self, found: bool, next_at: Option<Timestamp>, now: Timestamp) -> Self {
        let idle = now.since(self.touched);
        let read_at = match found || idle < EAGER {
            true => now,
            // At a third more than the age of the touch.
            false => now.after((idle / 3).min(INTERVAL_MAX)),
        };
        Self {
            read_at: next_at.map_or(read_at, |next| read_at.min(next)),
            ..self
        }
    }
}

/// The sort key of a lane's item.
fn sort_key(lane: &str, priority: Priority) -> Vec<u8> {
    let mut bytes = lane.as_bytes().to_vec();
    // A lane contains no zero byte, so that the priorities of one lane are together. The highest comes first.
    bytes.push(0);
    let inverted = i32::from(i16::MAX) - i32::from(priority.get());
    bytes.extend(inverted.to_be_bytes());
    bytes
}

/// The lane of an item.
fn lane_of(item: &Item) -> Option<(LaneName, Timestamp)> {
    let key = ItemKey::of(item)?;
    let (name, rest) = key.sk.split_at_checked(key.sk.len().checked_sub(5)?)?;
    let inverted = i32::from_be_bytes(rest.get(1..)?.try_into().ok()?);
    let priority = i16::try_from(i32::from(i16::MAX) - inverted).ok()?;
    let touched = get_num(item, TOUCHED).ok().flatten()?;
    let name = Arc::from(std::str::from_utf8(name).ok()?);
    Some(((name, Reverse(priority)), Timestamp::clamped(touched)))
}

fn key(partitions: &JobPartitions, lane: &str, priority: Priority) -> ItemKey {
    ItemKey::new(partitions.lanes(), sort_key(lane, priority))
}

impl DynamoStore {
    /// Announces that a task is about to get into its lane, if its job has lanes.
    pub(crate) async fn touch_lane(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        task: &Task,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(lane) = entry.job.lane_of(task) else {
            return Ok(());
        };
        let partition = entry.partitions.due_in_lane(lane, task.priority);
        let holds = |at: &Timestamp| now >= *at && now.since(*at) < TOUCH_HOLDS;
        {
            let mut memory = self.lane_memory.lock();
            let memory = &mut *memory;
            // This process may be the one that reads it.
            if let Some(job) = memory.jobs.get_mut(&entry.partitions.lanes()) {
                let name = (Arc::from(lane), Reverse(task.priority.get()));
                let (touched, read_at) = (now, now);
                let known = job.lanes.entry(name);
                let known = known.or_insert(KnownLane { touched, read_at });
                known.read_at = known.read_at.min(now);
            }
            if memory.touches.get(&partition).is_some_and(holds) {
                return Ok(());
            }
        }
        self.write_touch(context, &key(&entry.partitions, lane, task.priority), now)
            .await?;
        let mut memory = self.lane_memory.lock();
        if memory.touches.len() >= LANES_MAX {
            memory.touches.retain(|_, at| holds(at));
        }
        memory.touches.insert(partition, now);
        Ok(())
    }

    async fn write_touch(
        &self,
        context: CallContext<'_>,
        key: &ItemKey,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let change = ItemChange {
            set: vec![(TOUCHED.to_owned(), num(now.millis()))],
            ..ItemChange::default()
        };
        self.table.update(context, key, change, None).await?;
        Ok(())
    }

    pub(crate) async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError> {
        let jobs = self.jobs(false).await?;
        let entry = jobs.open(&query.job)?.clone();
        if entry.job.fair_share.is_none() {
            return Ok(LanePage {
                is_last: true,
                ..LanePage::default()
            });
        }
        let context = CallContext::of_job(query.job.as_str(), "lanes");
        self.read_lane_items(context, &entry).await?;
        let (wanted, next_at) = self.lanes_to_read(&entry, &query);
        let lanes = wanted.iter().map(|(name, _)| name);
        let lanes: std::collections::BTreeSet<_> = lanes.collect();
        let per_lane = query.tasks_per_lane(lanes.len().min(query.tasks_max));
        let mut reads = stream::iter(wanted.iter().cloned())
            .map(|name| Box::pin(self.read_lane(context, &entry, name, per_lane, query.now)))
            .buffered(CONCURRENT_SCANS);
        let mut page = LanePage {
            next_at,
            is_last: true,
            ..LanePage::default()
        };
        let mut with_tasks = 0;
        while let Some(read) = reads.try_next().await? {
            let (lane, _) = &read.name;
            let is_same = page.lanes.last().is_some_and(|last| last.name == *lane);
            if !is_same && with_tasks >= query.tasks_max {
                page.is_last = false;
                break;
            }
            page.next_at = page.next_at.into_iter().chain(read.next_at).min();
            let tasks = read
                .tasks
                .iter()
                .map(|task| due_task(&query.job, task))
                .collect::<Vec<_>>();
            match page.lanes.last_mut() {
                Some(last) if is_same => {
                    with_tasks += usize::from(last.tasks.is_empty() && !tasks.is_empty());
                    last.tasks.extend(tasks);
                    last.tasks.truncate(per_lane);
                }
                _ => {
                    with_tasks += usize::from(!tasks.is_empty());
                    let name = lane.clone();
                    page.lanes.push(Lane { name, tasks });
                }
            }
        }
        Ok(page)
    }

    /// Reads the items of lanes, if they were not read just now. A touch that this process has not seen makes a lane be read.
    async fn read_lane_items(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
    ) -> Result<(), StoreError> {
        let partition = entry.partitions.lanes();
        {
            let memory = self.lane_memory.lock();
            let is_fresh = |job: &JobLanes| {
                let lanes = u32::try_from(job.lanes.len()).unwrap_or(u32::MAX);
                let every = READ_EVERY + READ_EVERY_PER_LANE * lanes;
                job.read_at.is_some_and(|at| at.elapsed() < every)
            };
            if memory.jobs.get(&partition).is_some_and(is_fresh) {
                return Ok(());
            }
        }
        let read_at = Instant::now();
        let request = QueryRequest {
            partition: &partition,
            ..QueryRequest::default()
        };
        let items = self.table.query_all(context, request, LANES_MAX).await?;
        let mut memory = self.lane_memory.lock();
        let job = memory.jobs.entry(partition).or_default();
        job.read_at = Some(read_at);
        let mut known = std::mem::take(&mut job.lanes);
        for (name, touched) in items.iter().filter_map(lane_of) {
            let seen = known.remove(&name).filter(|lane| lane.touched == touched);
            let new = || KnownLane {
                touched,
                read_at: Timestamp::EPOCH,
            };
            job.lanes.insert(name, seen.unwrap_or_else(new));
        }
        Ok(())
    }

    /// The lanes of the caller's share that may have due tasks, and when the next one is to be read.
    fn lanes_to_read(
        &self,
        entry: &JobEntry,
        query: &LaneQuery,
    ) -> (Vec<LaneName>, Option<Timestamp>) {
        let memory = self.lane_memory.lock();
        let job = memory.jobs.get(&entry.partitions.lanes());
        let after = query.after.as_ref();
        let is_in_share = |lane: &str| {
            let share = query.share.as_ref();
            share.is_none_or(|share| share.covers(&query.job, entry.shard_of_lane(lane)))
        };
        let lanes = job.into_iter().flat_map(|job| &job.lanes);
        let lanes = lanes.filter(|((name, _), _)| is_in_share(name));
        let (mut names, mut next_at) = (Vec::new(), None::<Timestamp>);
        for (name, lane) in lanes {
            if lane.read_at > query.now {
                next_at = Some(next_at.map_or(lane.read_at, |next| next.min(lane.read_at)));
            } else if after.is_none_or(|after| name.0 > *after) {
                names.push(name.clone());
            }
        }
        (names, next_at)
    }

    /// Reads the first tasks of a lane of one priority.
    async fn read_lane(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        name: LaneName,
        per_lane: usize,
        now: Timestamp,
    ) -> Result<LaneRead, StoreError> {
        let (lane, Reverse(priority)) = &name;
        let priority = Priority::new(i64::from(*priority)).unwrap_or_default();
        let partition: Arc<str> = entry.partitions.due_in_lane(lane, priority).into();
        let range = SortRange::All;
        let slice = self
            .read_index(context, &partition, range, None, now, per_lane)
            .await?;
        let is_empty = slice.entries.is_empty() && slice.next_hint.is_none();
        let mut result = ScanResult {
            next_at: slice.next_hint,
            ..ScanResult::default()
        };
        let entries = slice.entries;
        let found = !entries.is_empty();
        self.check_entries(context, entry, &partition, now, entries, &mut result)
            .await?;
        let is_waiting =
            |task: &CheckedTask| matches!(task.kind, StateKind::New | StateKind::Retriable);
        result.due.retain(is_waiting);
        result
            .due
            .sort_unstable_by_key(|task| (task.trigger_at, task.id));
        let touched = self.record_read(entry, &name, found, result.next_at, now);
        if let Some(touched) = touched {
            self.care_for_item(context, entry, &name, touched, is_empty, now)
                .await?;
        }
        Ok(LaneRead {
            tasks: result.due,
            next_at: result.next_at,
            name,
        })
    }

    /// Records that a lane was read, and returns when it was touched.
    fn record_read(
        &self,
        entry: &JobEntry,
        name: &LaneName,
        found: bool,
        next_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let mut memory = self.lane_memory.lock();
        let job = memory.jobs.get_mut(&entry.partitions.lanes())?;
        let lane = job.lanes.get_mut(name)?;
        *lane = lane.after_read(found, next_at, now);
        Some(lane.touched)
    }

    /// Renews the touch of a lane that is in use, and deletes the item of one that is not.
    async fn care_for_item(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        name: &LaneName,
        touched: Timestamp,
        is_empty: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (lane, Reverse(priority)) = name;
        let priority = Priority::new(i64::from(*priority)).unwrap_or_default();
        let key = key(&entry.partitions, lane, priority);
        let age = now.since(touched);
        if is_empty && age >= UNUSED_AFTER {
            let unchanged = WriteCondition::Is(TOUCHED, num(touched.millis()));
            self.table.delete(context, &key, Some(unchanged)).await?;
        } else if !is_empty && age >= RENEW_AFTER {
            self.write_touch(context, &key, now).await?;
        }
        Ok(())
    }

    /// The partitions of the index in which tasks of a job wait in lanes.
    pub(crate) async fn lane_partitions(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
    ) -> Result<Vec<String>, StoreError> {
        if entry.job.fair_share.is_none() {
            return Ok(Vec::new());
        }
        let partition = entry.partitions.lanes();
        let request = QueryRequest {
            partition: &partition,
            consistent: true,
            ..QueryRequest::default()
        };
        let items = self.table.query_all(context, request, LANES_MAX).await?;
        let lanes = items.iter().filter_map(lane_of);
        let partitions = lanes.map(|((lane, Reverse(priority)), _)| {
            let priority = Priority::new(i64::from(priority)).unwrap_or_default();
            entry.partitions.due_in_lane(&lane, priority)
        });
        Ok(partitions.collect())
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::JobName;

    use super::*;

    #[test]
    fn g_07_the_items_of_lanes_sort_by_name_and_then_highest_priority_first() {
        let partitions = JobPartitions {
            job: JobName::parse("mail").unwrap(),
            generation: "abc123".into(),
            slots: 1,
        };
        let mut keys = Vec::new();
        for lane in ["", "a", "a b", "ab", "b"] {
            for priority in [1_000, 0, -1_000] {
                let priority = Priority::new(priority).unwrap();
                let mut item = key(&partitions, lane, priority).item();
                item.insert(TOUCHED.into(), num(5));
                let (name, touched) = lane_of(&item).unwrap();
                assert_eq!(name, (Arc::from(lane), Reverse(priority.get())));
                assert_eq!(touched, Timestamp::clamped(5));
                keys.push(sort_key(lane, priority));
            }
        }
        assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn g_07_an_empty_lane_is_read_less_and_less_often_but_never_given_up() {
        let touched = Timestamp::clamped(1_000_000);
        let mut lane = KnownLane {
            touched,
            read_at: touched,
        };
        let mut reads = 0;
        while lane.read_at.since(touched) < Duration::from_secs(3_600) {
            let now = lane.read_at.after(Duration::from_millis(200));
            lane = lane.after_read(false, None, now);
            assert!(lane.read_at.since(now) <= INTERVAL_MAX);
            reads += 1;
        }
        assert!((70..120).contains(&reads), "{reads}");
        // The time of the next task, and tasks that were found, shorten the wait.
        let now = touched.after(Duration::from_secs(600));
        let soon = now.after(Duration::from_secs(7));
        assert_eq!(lane.after_read(false, Some(soon), now).read_at, soon);
        assert_eq!(lane.after_read(true, None, now).read_at, now);
    }
}
