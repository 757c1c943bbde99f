//! The part of the store seam that limits how many tasks of a job run at once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use dueline_domain::{JobName, Task, TaskId, Timestamp};

/// Tasks that are about to be enqueued or claimed, in a job that limits how many of its tasks are enqueued or owned at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakePlaces {
    /// The job.
    pub job: JobName,
    /// Most tasks of the job that may be enqueued or owned at once.
    pub limit: u32,
    /// Most tasks of one lane that may be enqueued or owned at once; `None` for no such limit.
    pub lane_limit: Option<u32>,
    /// Most tasks of the job that may be enqueued, and owned by no worker yet, at once; `None` for no such limit.
    pub enqueued_max: Option<u32>,
    /// The tasks, in the order in which they get places. One whose lane is full is passed over.
    pub tasks: Vec<PlaceRequest>,
    /// When this is.
    pub now: Timestamp,
}

/// A task that needs a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceRequest {
    /// The task.
    pub id: TaskId,
    /// Its trigger time as it was read.
    pub trigger_at: Timestamp,
    /// Its lane; the empty text in a job without lanes.
    pub lane: Arc<str>,
}

impl PlaceRequest {
    /// The request for a task as it was read; `None` if it has no trigger time.
    pub fn of(task: &Task) -> Option<Self> {
        Some(Self {
            id: task.id,
            trigger_at: task.trigger_at()?,
            lane: task.lane_name().into(),
        })
    }
}

/// The answer to [`TakePlaces`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The tasks that got places, in their order.
    pub granted: Vec<TaskId>,
    /// Whether the limits of the job leave no room for another task. If not, the tasks without a place are of full lanes.
    pub is_full: bool,
    /// How many tasks of the job were enqueued, and owned by no worker, before this call. Only known with
    /// [`TakePlaces::enqueued_max`].
    pub enqueued: usize,
}

impl TakePlaces {
    /// How long a place is kept for a task that is not enqueued. A process that enqueues the task later than that may exceed
    /// the limit.
    pub const LIFETIME: Duration = Duration::from_secs(10);

    /// Asks for places where only the number of the job's tasks is limited.
    pub const fn new(job: JobName, limit: u32, tasks: Vec<PlaceRequest>, now: Timestamp) -> Self {
        Self {
            job,
            limit,
            lane_limit: None,
            enqueued_max: None,
            tasks,
            now,
        }
    }

    /// How many more places the limits of the job allow, with this many tasks that hold places, of which this many are
    /// enqueued, or about to be.
    pub fn room(&self, held: usize, enqueued: usize) -> usize {
        let free = as_len(self.limit).saturating_sub(held);
        let ahead = self.enqueued_max.map(as_len);
        ahead.map_or(free, |max| free.min(max.saturating_sub(enqueued)))
    }

    /// The first tasks for which there is room: in the job, and in each lane, of which `held_in` says how many of its tasks
    /// hold places.
    pub fn grant(
        &self,
        mut room: usize,
        mut held_in: impl FnMut(&str) -> usize,
    ) -> (Vec<&PlaceRequest>, bool) {
        let mut lanes: HashMap<&str, usize> = HashMap::new();
        let mut granted = Vec::new();
        for task in &self.tasks {
            if room == 0 {
                break;
            }
            if let Some(limit) = self.lane_limit {
                let held = lanes
                    .entry(&task.lane)
                    .or_insert_with(|| held_in(&task.lane));
                if *held >= as_len(limit) {
                    continue;
                }
                *held += 1;
            }
            room -= 1;
            granted.push(task);
        }
        (granted, room == 0)
    }
}

fn as_len(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The places of tasks that are about to be enqueued, in a store that one process owns. The store itself counts the tasks
/// that are enqueued or owned.
#[derive(Debug, Default)]
pub struct LocalPlaces(HashMap<JobName, Vec<Reserved>>);

/// A place of a task that is not enqueued yet.
#[derive(Debug)]
struct Reserved {
    id: TaskId,
    until: Timestamp,
    lane: Arc<str>,
}

/// How many tasks of a job a store counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningCounts {
    /// Tasks that are enqueued or owned.
    pub in_flight: usize,
    /// Those of them that are enqueued.
    pub enqueued: usize,
}

impl LocalPlaces {
    /// As [`JobStore::take_places`](crate::JobStore::take_places), for a job with these tasks. `in_lane` counts those of one
    /// lane that are enqueued or owned.
    pub fn take_places(
        &mut self,
        take: &TakePlaces,
        counts: RunningCounts,
        mut in_lane: impl FnMut(&str) -> usize,
    ) -> Places {
        let reserved = self.0.entry(take.job.clone()).or_default();
        reserved.retain(|place| {
            place.until > take.now && !take.tasks.iter().any(|task| task.id == place.id)
        });
        let held = counts.in_flight + reserved.len();
        let room = take.room(held, counts.enqueued + reserved.len());
        let held_in = |lane: &str| {
            let reserved = reserved.iter().filter(|place| &*place.lane == lane);
            in_lane(lane) + reserved.count()
        };
        let (granted, is_full) = take.grant(room, held_in);
        let until = take.now.after(TakePlaces::LIFETIME);
        let ids = granted.iter().map(|task| task.id).collect();
        reserved.extend(granted.into_iter().map(|task| Reserved {
            id: task.id,
            until,
            lane: task.lane.clone(),
        }));
        if reserved.is_empty() {
            self.0.remove(&take.job);
        }
        Places {
            granted: ids,
            is_full,
            enqueued: counts.enqueued,
        }
    }

    /// Forgets the reservation of a task that is enqueued or owned now: the store counts it from here on. Costs one comparison if no job has a limit.
    pub fn settle(&mut self, job: &JobName, id: &TaskId) {
        if self.0.is_empty() {
            return;
        }
        if let Some(reserved) = self.0.get_mut(job) {
            reserved.retain(|place| place.id != *id);
            if reserved.is_empty() {
                self.0.remove(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(tasks: &[u8], now: i64) -> TakePlaces {
        TakePlaces {
            job: JobName::parse("mail").unwrap(),
            limit: 3,
            lane_limit: None,
            enqueued_max: None,
            tasks: tasks.iter().map(|n| request(*n, "")).collect(),
            now: Timestamp::clamped(now),
        }
    }

    fn request(n: u8, lane: &str) -> PlaceRequest {
        PlaceRequest {
            id: TaskId::from_bytes([n; 16]),
            trigger_at: Timestamp::EPOCH,
            lane: lane.into(),
        }
    }

    fn running(in_flight: usize) -> RunningCounts {
        RunningCounts {
            in_flight,
            enqueued: 0,
        }
    }

    #[test]
    fn a_place_is_kept_until_its_task_runs_or_its_time_is_over() {
        let mut places = LocalPlaces::default();
        let mut granted = |tasks: &[u8], now, in_flight| {
            let places = places.take_places(&take(tasks, now), running(in_flight), |_| 0);
            places.granted.len()
        };
        assert_eq!(granted(&[1, 2], 0, 0), 2);
        // The same tasks get their own places again.
        assert_eq!(granted(&[1, 2], 1, 0), 2);
        assert_eq!(granted(&[3, 4], 2, 0), 1);
        assert_eq!(granted(&[5], 3, 0), 0);

        let job = JobName::parse("mail").unwrap();
        places.settle(&job, &TaskId::from_bytes([1; 16]));
        let mut granted = |tasks: &[u8], now, in_flight| {
            let places = places.take_places(&take(tasks, now), running(in_flight), |_| 0);
            places.granted.len()
        };
        assert_eq!(granted(&[5], 4, 1), 0);
        // Its run is over.
        assert_eq!(granted(&[5], 5, 0), 1);
        assert_eq!(granted(&[6], 9_000, 0), 0);
        assert_eq!(granted(&[6, 7, 8, 9], 20_000, 0), 3);
    }

    #[test]
    fn g_07_a_full_lane_is_passed_over_and_its_places_are_counted_apart() {
        let mut places = LocalPlaces::default();
        let mut asked = TakePlaces {
            limit: 100,
            lane_limit: Some(2),
            tasks: vec![
                request(1, "a"),
                request(2, "b"),
                request(3, "a"),
                request(4, "a"),
                request(5, "b"),
            ],
            ..take(&[], 0)
        };
        let ids = |places: &Places| {
            let ids = places.granted.iter().map(|id| id.as_bytes()[0]);
            ids.collect::<Vec<_>>()
        };
        // One task of lane b runs already.
        let in_lane = |lane: &str| usize::from(lane == "b");
        let first = places.take_places(&asked, running(1), in_lane);
        assert_eq!((ids(&first), first.is_full), (vec![1, 2, 3], false));
        asked.tasks = vec![request(6, "a"), request(7, "c")];
        let second = places.take_places(&asked, running(1), in_lane);
        assert_eq!((ids(&second), second.is_full), (vec![7], false));
        // The room of the job ends first.
        asked.limit = 5;
        asked.tasks = vec![request(8, "a"), request(9, "d"), request(10, "e")];
        let third = places.take_places(&asked, running(0), |_| 0);
        assert_eq!((ids(&third), third.is_full), (vec![9], true));
    }

    #[test]
    fn g_07_no_more_tasks_are_enqueued_ahead_of_the_workers_than_asked_for() {
        let mut places = LocalPlaces::default();
        let asked = |tasks: &[u8]| TakePlaces {
            limit: 100,
            enqueued_max: Some(4),
            ..take(tasks, 0)
        };
        let counts = RunningCounts {
            in_flight: 50,
            enqueued: 3,
        };
        let first = places.take_places(&asked(&[1, 2]), counts, |_| 0);
        assert_eq!((first.granted.len(), first.is_full), (1, true));
        assert_eq!(first.enqueued, 3);
        // The place that was granted counts, too.
        let second = places.take_places(&asked(&[3]), counts, |_| 0);
        assert_eq!((second.granted.len(), second.is_full), (0, true));
    }
}
