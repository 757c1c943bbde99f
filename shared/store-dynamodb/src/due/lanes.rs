//! Lanes: waiting tasks of jobs whose fairness keys take turns.
//!
//! The waiting tasks of one key and one priority are a partition of the due index, so that the first ones of each key are read
//! without those of others. Which of these partitions there are says an item for each in the table. It is *touched* before a
//! task gets into the lane: it has the time of the latest touch, by which a reader sees that a lane that was empty may have
//! tasks again. A task that gets into a lane that was touched within the last second does not touch it. The index may lag
//! behind, so a lane is read again and again after a touch, at growing intervals that never end while its item exists.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
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
/// How long an empty lane is read often after a touch, how often, and how long the intervals become.
const EAGER: Duration = Duration::from_secs(3);
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long after its latest touch the item of an empty lane is deleted.
const UNUSED_AFTER: Duration = Duration::from_secs(3_600);
/// Entries that are read of a lane at the most before it counts as one without due tasks: some may be of tasks that have just
/// left it, or that cannot be decoded.
const PAGES_MAX: usize = 5;
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
    /// The first trigger time that had not passed when the lane was read.
    next_at: Option<Timestamp>,
}

/// The result of reading one lane of one priority.
struct LaneRead {
    name: LaneName,
    tasks: Vec<CheckedTask>,
    has_more: bool,
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
        let interval = match idle < EAGER {
            true => INTERVAL_MIN,
            false => (idle / 3).min(INTERVAL_MAX),
        };
        let read_at = if found { now } else { now.after(interval) };
        Self {
            read_at: next_at.map_or(read_at, |next| read_at.min(next)),
            next_at,
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
                let known = job.lanes.entry(name).or_insert(KnownLane {
                    touched: now,
                    read_at: now,
                    next_at: None,
                });
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
        if entry.job.fair_share.is_none() || !query.is_covered() {
            return Ok(LanePage::default());
        }
        let context = CallContext::of_job(query.job.as_str(), "lanes");
        self.read_lane_items(context, &entry).await?;
        let (wanted, rest) = self.lanes_to_read(&entry, &query);
        let lanes: BTreeSet<_> = wanted.iter().map(|(name, _)| name).collect();
        let per_lane = query.tasks_per_lane(lanes.len().min(query.tasks_max));
        let mut reads = stream::iter(wanted.iter().cloned())
            .map(|name| Box::pin(self.read_lane(context, &entry, name, per_lane, query.now)))
            .buffered(CONCURRENT_SCANS);
        let mut page = LanePage {
            end: rest,
            ..LanePage::default()
        };
        let mut examined = None::<Arc<str>>;
        while let Some(read) = reads.try_next().await? {
            let (lane, _) = &read.name;
            let is_same = examined.as_ref() == Some(lane);
            if !is_same && page.lanes.len() >= query.tasks_max {
                page.end = examined;
                break;
            }
            examined = Some(lane.clone());
            page.has_more |= read.has_more;
            let tasks = read.tasks.iter().map(|task| due_task(&query.job, task));
            let last = page.lanes.last_mut().filter(|last| last.name == *lane);
            match last {
                Some(last) => {
                    last.tasks.extend(tasks);
                    page.has_more |= last.tasks.len() > per_lane;
                    last.tasks.truncate(per_lane);
                }
                None if read.tasks.is_empty() => {}
                None => page.lanes.push(Lane {
                    name: lane.clone(),
                    tasks: tasks.collect(),
                }),
            }
        }
        page.next_at = self.next_in_lanes(&entry, query.now);
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
                next_at: None,
            };
            job.lanes.insert(name, seen.unwrap_or_else(new));
        }
        Ok(())
    }

    /// The first trigger time in a lane that has not passed.
    fn next_in_lanes(&self, entry: &JobEntry, now: Timestamp) -> Option<Timestamp> {
        let memory = self.lane_memory.lock();
        let job = memory.jobs.get(&entry.partitions.lanes())?;
        let times = job.lanes.values().filter_map(|lane| lane.next_at);
        times.filter(|at| *at > now).min()
    }

    /// The lanes behind the caller's that may have due tasks, and where the next page begins if that are not all.
    fn lanes_to_read(
        &self,
        entry: &JobEntry,
        query: &LaneQuery,
    ) -> (Vec<LaneName>, Option<Arc<str>>) {
        let memory = self.lane_memory.lock();
        let job = memory.jobs.get(&entry.partitions.lanes());
        let after = query.after.as_ref();
        let (mut names, mut rest) = (Vec::<LaneName>::new(), None);
        for (name, lane) in job.into_iter().flat_map(|job| &job.lanes) {
            if lane.read_at > query.now
                || rest.is_some()
                || after.is_some_and(|after| name.0 <= *after)
            {
                continue;
            }
            match names.last() {
                // All priorities of a lane are on one page.
                Some((last, _)) if names.len() >= query.lanes_max() && *last != name.0 => {
                    rest = Some(last.clone());
                }
                _ => names.push(name.clone()),
            }
        }
        (names, rest)
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
        let (mut tasks, mut next_at, mut from) = (Vec::new(), None, None);
        let (mut is_empty, mut has_more) = (true, false);
        for _ in 0..PAGES_MAX {
            let slice = self
                .read_index(
                    context,
                    &partition,
                    SortRange::All,
                    from.take(),
                    now,
                    per_lane,
                )
                .await?;
            is_empty &= slice.entries.is_empty() && slice.next_hint.is_none();
            next_at = slice.next_hint;
            let mut entries = slice.entries;
            // No more than are needed are checked, because a check reads the whole task.
            while !entries.is_empty() && tasks.len() < per_lane {
                let left = entries.split_off(entries.len().min(per_lane - tasks.len()));
                let mut result = ScanResult::default();
                let checked = std::mem::replace(&mut entries, left);
                self.check_entries(context, entry, &partition, now, checked, &mut result)
                    .await?;
                let is_waiting =
                    |task: &CheckedTask| matches!(task.kind, StateKind::New | StateKind::Retriable);
                tasks.extend(result.due.into_iter().filter(is_waiting));
            }
            has_more = !entries.is_empty() || slice.cut_at.is_some();
            from = slice.cut_at;
            if tasks.len() >= per_lane || from.is_none() {
                break;
            }
        }
        tasks.sort_unstable_by_key(|task| (task.trigger_at, task.id));
        let found = !tasks.is_empty() || has_more;
        let touched = self.record_read(entry, &name, found, next_at, now);
        if let Some(touched) = touched.filter(|_| is_empty) {
            self.delete_unused(context, entry, &name, touched, now)
                .await?;
        }
        Ok(LaneRead {
            name,
            tasks,
            has_more,
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

    /// Deletes the item of an empty lane that was not touched for long.
    async fn delete_unused(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        (lane, Reverse(priority)): &LaneName,
        touched: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if now.since(touched) < UNUSED_AFTER {
            return Ok(());
        }
        let priority = Priority::new(i64::from(*priority)).unwrap_or_default();
        let key = key(&entry.partitions, lane, priority);
        let unchanged = WriteCondition::Is(TOUCHED, num(touched.millis()));
        self.table.delete(context, &key, Some(unchanged)).await?;
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
            next_at: None,
        };
        let mut reads = 0;
        while lane.read_at.since(touched) < Duration::from_secs(3_600) {
            let now = lane.read_at.after(Duration::from_millis(100));
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
