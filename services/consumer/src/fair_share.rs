//! Fair share: the fairness keys of a job take turns.
//!
//! The tasks of such a job wait in lanes, one for each key. A scan takes the first tasks of as many lanes as it can, begins
//! with the lane after the last one that had its turn, and takes a second task of a lane only after one of each other lane.
//! What is enqueued can't be put in order any more, so no more tasks are enqueued ahead of the workers than keep them busy:
//! [`Ahead`] learns how many these are.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use dueline_domain::{Job, JobName, StateKind, TaskId, Timestamp};
use dueline_ports::{DueTask, Lane, LaneQuery, Places, Share, Store, StoreError};
use tokio::time::Instant;

/// Most tasks of a job that one scan takes from lanes. What a scan could not move keeps its place for a while, so a slow
/// store must not get more than it moves in one scan.
const TASKS_MAX: usize = 100;
/// Most pages of lanes that one scan reads of a job.
const PAGES_MAX: usize = 4;

/// The lanes of all jobs that have some.
#[derive(Debug, Default)]
pub(crate) struct FairShares(BTreeMap<JobName, JobLanes>);

/// The lanes of one job.
#[derive(Debug)]
pub(crate) struct JobLanes {
    /// The lane that had the last turn.
    last: Option<Arc<str>>,
    pub(crate) ahead: Ahead,
    /// The tasks that the current scan has found, in their order, with their lanes.
    found: Vec<(TaskId, Arc<str>)>,
    /// Whether the current scan has examined all lanes.
    is_complete: bool,
    /// Whether there may be more tasks in the lanes that the current scan has found.
    has_more: bool,
    /// How often the end of the lanes was passed since a task got a place. Twice means that all lanes were examined.
    rounds: u32,
}

/// What a scan reads of lanes.
pub(crate) struct LaneScan<'a> {
    pub(crate) store: &'a dyn Store,
    /// How many pending tasks of some jobs to read at the most.
    pub(crate) limits: &'a BTreeMap<JobName, usize>,
    pub(crate) batch_max: usize,
    pub(crate) share: Option<&'a Share>,
    pub(crate) now: Timestamp,
}

/// What a scan has found in lanes.
#[derive(Debug, Default)]
pub(crate) struct LaneTasks {
    /// The tasks of each job in the order of turns.
    pub(crate) tasks: Vec<DueTask>,
    /// The earliest trigger time that has not passed.
    pub(crate) next_at: Option<Timestamp>,
    /// Whether no task was found in the lanes of a job of which others are still to be examined.
    pub(crate) is_unfinished: bool,
}

impl FairShares {
    /// Reads the due tasks whose turn it is. `due` are the due tasks that are in no lane; those of a job with a fair share were
    /// stored before it had one. They are taken out, and have one turn together.
    pub(crate) async fn read(
        &mut self,
        jobs: &[Arc<Job>],
        scan: &LaneScan<'_>,
        due: &mut Vec<DueTask>,
    ) -> LaneTasks {
        let mut found = LaneTasks::default();
        let mut known = std::mem::take(&mut self.0);
        for job in jobs.iter().filter(|job| job.fair_share.is_some()) {
            let is_older = |task: &mut DueTask| {
                task.job == job.name && matches!(task.kind, StateKind::New | StateKind::Retriable)
            };
            let older: Vec<_> = due.extract_if(.., is_older).collect();
            let mut lanes = known.remove(&job.name).unwrap_or_default();
            let limit = scan.limits.get(&job.name).copied();
            let limit = limit.unwrap_or(scan.batch_max).min(scan.batch_max);
            let limit = limit.min(lanes.ahead.max()).min(TASKS_MAX);
            lanes.found.clear();
            if limit > 0 {
                match lanes.read(&job.name, scan, limit, older).await {
                    Ok((tasks, next_at)) => {
                        found.is_unfinished |= tasks.is_empty() && lanes.goes_on();
                        found.tasks.extend(tasks);
                        found.next_at = found.next_at.into_iter().chain(next_at).min();
                    }
                    Err(error) => {
                        tracing::warn!(job.name = %job.name, %error, "failed to read the lanes of a job");
                    }
                }
            }
            self.0.insert(job.name.clone(), lanes);
        }
        found
    }

    /// The lanes of a job, if it has any.
    pub(crate) fn of(&mut self, job: &JobName) -> Option<&mut JobLanes> {
        self.0.get_mut(job)
    }
}

impl Default for JobLanes {
    fn default() -> Self {
        Self {
            last: None,
            ahead: Ahead::new(Instant::now()),
            found: Vec::new(),
            is_complete: true,
            has_more: false,
            rounds: 0,
        }
    }
}

impl JobLanes {
    async fn read(
        &mut self,
        job: &JobName,
        scan: &LaneScan<'_>,
        limit: usize,
        older: Vec<DueTask>,
    ) -> Result<(Vec<DueTask>, Option<Timestamp>), StoreError> {
        let begin = self.last.clone();
        let mut older = Some(older).filter(|older| !older.is_empty());
        let (mut lanes, mut next_at) = (Vec::new(), None);
        let (mut after, mut from_first) = (begin.clone(), begin.is_none());
        (self.is_complete, self.has_more) = (false, false);
        for _ in 0..PAGES_MAX {
            if after.is_none()
                && let Some(tasks) = older.take()
            {
                // They have the turn of the tasks without a key.
                let name = Arc::default();
                lanes.push(Lane { name, tasks });
            }
            let query = LaneQuery {
                job: job.clone(),
                now: scan.now,
                after: after.take(),
                tasks_max: limit.saturating_sub(lanes.len()).max(1),
                share: scan.share.cloned(),
            };
            let page = scan.store.lanes(query).await?;
            self.has_more |= page.has_more;
            next_at = next_at.into_iter().chain(page.next_at).min();
            // After the last lane comes the first one, up to the lane where this scan began.
            let is_new =
                |lane: &Lane| !from_first || begin.is_none() || Some(&lane.name) <= begin.as_ref();
            lanes.extend(page.lanes.into_iter().filter(is_new));
            match page.end {
                Some(end) if from_first && begin.is_some() && Some(&end) >= begin.as_ref() => {
                    self.is_complete = true;
                }
                Some(end) => after = Some(end),
                None if from_first => self.is_complete = true,
                None => from_first = true,
            }
            self.rounds += u32::from(after.is_none());
            if lanes.is_empty() {
                self.last = after.clone();
            }
            if self.is_complete || lanes.len() >= limit {
                break;
            }
        }
        let tasks = in_turns(lanes, limit, |id, lane| {
            self.found.push((id, lane.clone()));
        });
        self.has_more |= tasks.len() >= limit;
        Ok((tasks, next_at))
    }

    /// The lane of each task that the current scan has found.
    pub(crate) fn by_task(&self) -> HashMap<TaskId, Arc<str>> {
        self.found.iter().cloned().collect()
    }

    /// Whether lanes are left that were not examined since a task got a place.
    const fn goes_on(&mut self) -> bool {
        let goes_on = !self.is_complete && self.rounds < 2;
        if !goes_on {
            self.rounds = 0;
        }
        goes_on
    }

    /// Records which of the tasks that were found got places. Returns whether lanes are left that had no turn although there
    /// is room.
    pub(crate) fn record(&mut self, places: &Places, now: Instant) -> bool {
        self.ahead.record(places, now);
        let granted: HashSet<_> = places.granted.iter().collect();
        let granted = |id: &TaskId| granted.contains(id);
        let had_turn = match places.is_full {
            // Tasks behind the last one that got a place were not reached.
            true => self.found.iter().rposition(|(id, _)| granted(id)),
            // All were reached; those without a place are of full lanes.
            false => self.found.len().checked_sub(1),
        };
        if let Some(last) = had_turn {
            self.last = Some(self.found[last].1.clone());
        }
        if !places.granted.is_empty() {
            self.rounds = 0;
        }
        let all_granted = self.found.iter().all(|(id, _)| granted(id));
        let has_more = self.has_more && all_granted;
        !places.is_full && (has_more || self.goes_on())
    }
}

/// Up to `limit` tasks of lanes: the first ones of all lanes, then the second ones.
fn in_turns(
    lanes: Vec<Lane>,
    limit: usize,
    mut record: impl FnMut(TaskId, &Arc<str>),
) -> Vec<DueTask> {
    let mut lanes: Vec<_> = lanes
        .into_iter()
        .map(|lane| (lane.name, lane.tasks.into_iter()))
        .collect();
    let mut tasks = Vec::new();
    while tasks.len() < limit && !lanes.is_empty() {
        lanes.retain_mut(|(name, rest)| {
            let next = rest.next().filter(|_| tasks.len() < limit);
            let Some(task) = next else { return false };
            record(task.id, name);
            tasks.push(task);
            true
        });
    }
    tasks
}

/// How many tasks of a job are enqueued ahead of its workers: as few as keep the workers busy, because a task of a quiet key
/// waits behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    max: u32,
    /// Since when more than half of the tasks that were enqueued were always there.
    ample_since: Instant,
}

impl Ahead {
    const MIN: u32 = 2;
    const FIRST: u32 = 8;
    const MAX: u32 = 500;
    /// How long there are too many until there are fewer.
    const AMPLE: Duration = Duration::from_secs(1);

    const fn new(now: Instant) -> Self {
        Self {
            max: Self::FIRST,
            ample_since: now,
        }
    }

    /// Most tasks that may be enqueued and not owned yet.
    pub(crate) const fn limit(&self) -> u32 {
        self.max
    }

    fn max(&self) -> usize {
        usize::try_from(self.max).unwrap_or(usize::MAX)
    }

    /// Takes into account how many tasks the workers had left when places were taken.
    fn record(&mut self, places: &Places, now: Instant) {
        let is_limited = places.enqueued + places.granted.len() >= self.max();
        if is_limited && places.enqueued == 0 {
            // The workers may have waited for tasks.
            (self.max, self.ample_since) = ((self.max * 2).min(Self::MAX), now);
        } else if places.enqueued * 2 <= self.max() {
            self.ample_since = now;
        } else if now.saturating_duration_since(self.ample_since) >= Self::AMPLE {
            (self.max, self.ample_since) = ((self.max * 3 / 4).max(Self::MIN), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str, tasks: &[u8]) -> Lane {
        let task = |n: &u8| DueTask {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([*n; 16]),
            kind: StateKind::New,
            trigger_at: Timestamp::EPOCH,
        };
        Lane {
            name: name.into(),
            tasks: tasks.iter().map(task).collect(),
        }
    }

    #[test]
    fn g_07_each_lane_has_a_turn_before_one_has_a_second() {
        let ids = |limit| {
            let lanes = vec![
                lane("a", &[1, 2, 3, 4]),
                lane("b", &[]),
                lane("c", &[5]),
                lane("d", &[6, 7]),
            ];
            let mut lanes_of = Vec::new();
            let tasks = in_turns(lanes, limit, |_, lane| lanes_of.push(lane.to_string()));
            let ids = tasks.iter().map(|task| task.id.as_bytes()[0]);
            (ids.collect::<Vec<_>>(), lanes_of.concat())
        };
        assert_eq!(ids(100), (vec![1, 5, 6, 2, 7, 3, 4], "acdadaa".to_owned()));
        assert_eq!(ids(4), (vec![1, 5, 6, 2], "acda".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn g_07_as_many_tasks_are_enqueued_as_keep_the_workers_busy() {
        let mut ahead = Ahead::new(Instant::now());
        let mut look = |enqueued, granted: usize| {
            let places = Places {
                granted: vec![TaskId::from_bytes([1; 16]); granted],
                is_full: true,
                enqueued,
            };
            ahead.record(&places, Instant::now());
            ahead.limit()
        };
        // The workers had nothing left, so that there may be more.
        assert_eq!(look(0, 8), 16);
        assert_eq!(look(0, 16), 32);
        // There was less to do than the limit.
        assert_eq!(look(0, 3), 32);
        // Always more than half of them is left.
        assert_eq!(look(30, 2), 32);
        tokio::time::advance(Ahead::AMPLE).await;
        assert_eq!(look(31, 1), 24);
        assert_eq!(look(7, 17), 24);
        tokio::time::advance(Ahead::AMPLE).await;
        assert_eq!(look(7, 17), 24);
        for _ in 0..20 {
            tokio::time::advance(Ahead::AMPLE).await;
            look(15, 1);
        }
        assert_eq!(look(2, 0), Ahead::MIN);
    }
}
