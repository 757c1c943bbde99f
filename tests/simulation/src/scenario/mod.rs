//! Scenarios: the hosts, tasks, faults and disruptions of a world, generated from a seed.

mod disruptions;
mod faults;
mod fleet;
mod schedules;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dueline_domain::{
    Backoff, Handler, Job, JobName, Policy, Quota, RetryPolicy, Sink, TaskId, Timestamp,
};
use dueline_ports::fakes::SeededRng;
use dueline_testkit::{QueueFaults, StoreFaults};

pub use self::{
    disruptions::{Disruption, HostKind},
    fleet::FleetSettings,
    schedules::{PlannedChange, PlannedSchedule},
    work::{PlannedFamily, PlannedSubmit, UserAction},
};

/// The time at which every world begins.
pub(crate) const BASE: Timestamp = match Timestamp::from_millis(1_800_000_000_000) {
    Ok(base) => base,
    Err(_) => Timestamp::EPOCH,
};

/// The property that a world demonstrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldMode {
    /// Dense random faults, then everything heals: no property is violated, and every task ends.
    Safety,
    /// As [`WorldMode::Safety`], with clocks that are off by minutes.
    WildClocks,
    /// Some hosts die for good and one queue never delivers: the tasks of all other jobs still end.
    Liveness,
    /// As [`WorldMode::Safety`], for a fleet (see [`FleetSettings`]) on a store and queues that are external services.
    Fleet,
    /// A fleet in which some hosts die for good. The rest heals step by step: first the hosts, then the store and the
    /// queues, then the index. Every task ends, and after that no error occurs.
    FleetLiveness,
    /// As [`WorldMode::Safety`], with tasks that wait for others, and that runs submit.
    Families,
    /// The same for a fleet.
    FleetFamilies,
    /// As [`WorldMode::Safety`], with schedules that users change, and clocks that may be off by more than a minute.
    Schedules,
    /// The same for a fleet, with clocks that are off by seconds.
    FleetSchedules,
}

impl WorldMode {
    /// Whether its tasks wait for others.
    pub const fn has_families(self) -> bool {
        matches!(self, Self::Families | Self::FleetFamilies)
    }

    /// Whether its jobs have schedules.
    pub const fn has_schedules(self) -> bool {
        matches!(self, Self::Schedules | Self::FleetSchedules)
    }

    /// Whether its worlds are fleets.
    pub const fn is_fleet(self) -> bool {
        matches!(
            self,
            Self::Fleet | Self::FleetLiveness | Self::FleetFamilies | Self::FleetSchedules
        )
    }
}

/// A world and all that happens in it. The same seed and mode give the same scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The property that the world demonstrates.
    pub mode: WorldMode,
    /// Number of hosts of each kind.
    pub hosts: [usize; 3],
    /// Largest clock skew.
    pub skew_max: Duration,
    /// Clock skew of each host, in milliseconds.
    pub skews_ms: Vec<i64>,
    /// Whether hosts wake each other by signals, as the services of one process do.
    pub signals: bool,
    /// How often, in thousandths, a host stalls just before user code begins.
    pub stalls: u32,
    /// Whether a claim also starts the run.
    pub claims_start: bool,
    /// Whether status controllers may answer heartbeats from memory.
    pub heartbeats_coalesced: bool,
    /// Settings of the fleet, if the world is one.
    pub fleet: Option<FleetSettings>,
    /// Faults of connections to the store.
    pub store: StoreFaults,
    /// Faults of connections to the queues.
    pub queue: QueueFaults,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The tasks that clients submit.
    pub submits: Vec<PlannedSubmit>,
    /// Changes that users make to tasks, with their times.
    pub user_actions: Vec<(Duration, UserAction)>,
    /// The schedules.
    pub schedules: Vec<PlannedSchedule>,
    /// Changes that users make to schedules, with their times.
    pub schedule_changes: Vec<(Duration, PlannedChange)>,
    /// Disruptions, with their times.
    pub disruptions: Vec<(Duration, Disruption)>,
    /// When all faults and disruptions end.
    pub heal_at: Duration,
    /// When every task must have ended.
    pub quiet_by: Duration,
}

/// Random draws for a scenario, from its seed.
pub(crate) struct ScenarioRng(SeededRng);

impl ScenarioRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// A number of at least `low` and below `high`.
    pub(crate) fn range(&self, low: u64, high: u64) -> u64 {
        low + self.0.below((high - low).max(1))
    }

    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.range(0, len as u64)).unwrap_or(0)
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.range(0, 100) < percent
    }

    pub(crate) fn ms(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.range(low, high))
    }

    /// A rate in thousandths; zero in a third of all worlds.
    fn rate(&self, max: u64) -> u32 {
        if self.chance(33) {
            return 0;
        }
        u32::try_from(self.range(0, max + 1)).unwrap_or(0)
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64, mode: WorldMode) -> Self {
        let rng = ScenarioRng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ mode as u64);
        let count = |max| usize::try_from(rng.range(1, max)).unwrap_or(1);
        let hosts = match mode.is_fleet() {
            true => [3, 2, 1 + count(3)],
            false => [count(3), count(3), 1 + count(3)],
        };
        let skew_max = match mode {
            WorldMode::WildClocks => Duration::from_secs(300),
            WorldMode::Schedules if rng.chance(30) => Duration::from_secs(90),
            _ if rng.chance(40) => Duration::ZERO,
            _ => Duration::from_millis(2_000),
        };
        let skew_max_ms = u64::try_from(skew_max.as_millis()).unwrap_or(0);
        let skew = |_| rng.range(0, 2 * skew_max_ms + 1).cast_signed() - skew_max_ms.cast_signed();
        let skews_ms = (0..hosts.iter().sum()).map(skew).collect();
        let jobs: Vec<Job> = ["mail", "report", "film"]
            .map(|name| job(name, &rng))
            .into();
        let heal_at = Duration::from_secs(match mode.is_fleet() {
            true => rng.range(30, 75),
            false => rng.range(15, 35),
        });
        let mut submits = work::submits(&rng, mode, jobs.len(), heal_at);
        let user_actions = work::user_actions(&rng, mode, submits.len(), heal_at);
        // A separate generator, so that fleet settings do not change the other draws of a seed.
        let fleet_rng = ScenarioRng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mode as u64);
        let fleet = mode
            .is_fleet()
            .then(|| FleetSettings::new(&fleet_rng, mode, hosts));
        let mut disruptions = match mode {
            WorldMode::Liveness => disruptions::permanent(&rng, hosts, &jobs),
            WorldMode::Fleet
            | WorldMode::FleetLiveness
            | WorldMode::FleetFamilies
            | WorldMode::FleetSchedules => {
                fleet::disruptions(&fleet_rng, mode, fleet.as_ref(), hosts, &jobs, heal_at)
            }
            _ => disruptions::transient(&rng, hosts, &jobs, heal_at, skew_max_ms),
        };
        let stalls = match mode {
            WorldMode::Safety | WorldMode::WildClocks | WorldMode::Fleet
                if fleet_rng.chance(50) =>
            {
                20
            }
            _ => 0,
        };
        if mode.has_families() {
            work::plan_families(&fleet_rng, &mut submits);
        }
        let (mut schedules, mut schedule_changes) = (Vec::new(), Vec::new());
        if mode.has_schedules() {
            schedules = schedules::plan(&fleet_rng, jobs.len(), heal_at);
            schedule_changes = schedules::changes(&fleet_rng, &schedules, heal_at);
            let clocks = schedules::disruptions(&fleet_rng, hosts[0], heal_at, skew_max_ms);
            disruptions.extend(clocks);
            disruptions.sort_by_key(|(at, _)| *at);
        }
        let slack = match mode {
            WorldMode::WildClocks | WorldMode::Schedules => 4_000,
            // A task whose release was lost is checked after a minute, then less and less often.
            _ if mode.has_families() => 8_000,
            _ => 240,
        };
        Self {
            seed,
            mode,
            hosts,
            skew_max,
            skews_ms,
            signals: rng.chance(50) && !mode.is_fleet(),
            stalls,
            claims_start: fleet_rng.chance(50),
            heartbeats_coalesced: fleet_rng.chance(50),
            fleet,
            store: faults::store_faults(&rng, mode.is_fleet()),
            queue: faults::queue_faults(&rng, mode.is_fleet()),
            jobs,
            submits,
            user_actions,
            schedules,
            schedule_changes,
            disruptions,
            heal_at,
            quiet_by: heal_at + Duration::from_secs(slack),
        }
    }

    /// The command that replays this scenario alone.
    pub fn replay(&self) -> String {
        let (seed, mode) = (self.seed, self.mode);
        format!("SEED={seed} MODE={mode:?} cargo test -p dueline-tests-simulation replay")
    }

    /// Hosts that are lost for good.
    pub fn lost_hosts(&self) -> BTreeSet<usize> {
        let disruptions = self.disruptions.iter();
        let lost = disruptions.filter_map(|(_, disruption)| match disruption {
            Disruption::Crash(host, None) => Some(*host),
            Disruption::Pause(host, lasts) if *lasts >= disruptions::FOREVER => Some(*host),
            _ => None,
        });
        lost.collect()
    }

    /// The policies by job.
    pub fn policies(&self) -> BTreeMap<JobName, Policy> {
        let jobs = self.jobs.iter();
        jobs.map(|job| (job.name.clone(), job.policy.clone()))
            .collect()
    }

    /// Jobs whose queue never delivers, so that their tasks need not end.
    pub fn jobs_with_dead_queue(&self) -> BTreeSet<JobName> {
        let disruptions = self.disruptions.iter();
        let dead = disruptions.filter_map(|(_, disruption)| match disruption {
            Disruption::DeadQueue(job) => Some(job.clone()),
            _ => None,
        });
        dead.collect()
    }

    /// Whether user code may begin after its claim was lost, because of a pause or clock skew.
    pub fn may_begin_late(&self) -> bool {
        let pauses =
            |(_, disruption): &(_, Disruption)| matches!(disruption, Disruption::Pause(..));
        !self.skew_max.is_zero() || self.stalls > 0 || self.disruptions.iter().any(pauses)
    }

    /// The id of the task that a run of the task with this number stages.
    pub fn staged_id(number: usize, attempt: u32) -> TaskId {
        Self::task_id(100_000 + 1_000 * number + usize::try_from(attempt).unwrap_or(0))
    }

    /// The number of a task with this id.
    pub fn number_of(id: TaskId) -> usize {
        let bytes: [u8; 8] = id.as_bytes()[8..].try_into().unwrap_or_default();
        usize::try_from(u64::from_be_bytes(bytes)).map_or(0, |number| number.saturating_sub(1))
    }

    /// The id of the task with this number.
    pub fn task_id(number: usize) -> TaskId {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&(number as u64 + 1).to_be_bytes());
        TaskId::from_bytes(bytes)
    }
}

/// The sink of the jobs that have one.
fn sink() -> Sink {
    Sink::parse("file:done.ndjson").unwrap_or_else(|_| unreachable!())
}

fn job(name: &str, rng: &ScenarioRng) -> Job {
    let backoff = |low, high| {
        let initial = rng.ms(low, high);
        Backoff::new(initial, 2.0, 0.2, Duration::from_secs(20)).unwrap_or_else(|_| unreachable!())
    };
    let heartbeat_timeout = Duration::from_secs(rng.range(3, 7));
    let policy = Policy {
        retry: RetryPolicy {
            retries_max: Some(u32::try_from(rng.range(0, 4)).unwrap_or(0)),
            standard: backoff(500, 8_000),
            worker_lost: rng.chance(30).then(|| backoff(1_000, 6_000)),
            ..RetryPolicy::default()
        },
        enqueue_timeout: Duration::from_secs(rng.range(3, 9)),
        claim_timeout: Duration::from_secs(rng.range(2, 5)),
        heartbeat_timeout,
        heartbeat_increment: heartbeat_timeout,
        run_timeout: rng
            .chance(30)
            .then(|| Duration::from_secs(rng.range(4, 15))),
        losses_max: u32::try_from(rng.range(2, 6)).unwrap_or(2),
        retention: None,
        // Every second timeout, so that a scenario draws the same random numbers with and without sinks.
        sink: heartbeat_timeout.as_secs().is_multiple_of(2).then(sink),
    };
    Job {
        name: JobName::parse(name).unwrap_or_else(|_| unreachable!()),
        info: "".into(),
        handler: Handler::worker(),
        policy,
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: "simulation".into(),
        created_at: BASE,
        changed_at: BASE,
    }
}
