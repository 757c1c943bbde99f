//! What a seed stands for: a world, its work, and what is done to it.

mod blows;
mod faults;
mod fleet;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dueline_domain::{
    Backoff, Handler, Job, JobName, Policy, Quota, RetryPolicy, TaskId, Timestamp,
};
use dueline_ports::fakes::SeededRng;
use dueline_testkit::{QueueFaults, StoreFaults};

pub use self::{
    blows::{Blow, HostKind},
    fleet::Fleet,
    work::{Act, Submit},
};

/// When every world begins.
pub(crate) const BASE: Timestamp = match Timestamp::from_millis(1_800_000_000_000) {
    Ok(base) => base,
    Err(_) => Timestamp::EPOCH,
};

/// What a run is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dense random faults, then everything heals: no promise is broken, and every task ends.
    Safety,
    /// As [`Mode::Safety`], with clocks that are wrong by minutes.
    WildClocks,
    /// Some hosts die for good and one queue never delivers: tasks of the other jobs end all the same.
    Liveness,
    /// As [`Mode::Safety`], for a [`Fleet`] on a store and queues that are services of somebody else.
    Fleet,
    /// A fleet of which some hosts die for good; the rest heals step by step: first the hosts, then the store and the
    /// queues, then the index. Every task ends, and after that nothing goes wrong any more.
    FleetLiveness,
}

impl Mode {
    /// Whether its worlds are fleets.
    pub const fn is_fleet(self) -> bool {
        matches!(self, Self::Fleet | Self::FleetLiveness)
    }
}

/// A world and what happens in it. The same seed and mode give the same scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// What it is to show.
    pub mode: Mode,
    /// How many hosts of each kind.
    pub hosts: [usize; 3],
    /// How far clocks may be off at most.
    pub skew_max: Duration,
    /// By how much the clock of each host is off, in milliseconds.
    pub skews_ms: Vec<i64>,
    /// Whether hosts wake each other, as services of one process do.
    pub signals: bool,
    /// How often, in thousandths, a host stands still just before user code begins.
    pub stalls: u32,
    /// Whether claims begin runs, and whether heartbeats are answered from memory where that will do.
    pub economy: (bool, bool),
    /// What makes it a fleet, if it is one.
    pub fleet: Option<Fleet>,
    /// What the network to the store does.
    pub store: StoreFaults,
    /// What the network to the queue does.
    pub queue: QueueFaults,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The tasks.
    pub submits: Vec<Submit>,
    /// What users do.
    pub acts: Vec<(Duration, Act)>,
    /// What is done to the world.
    pub blows: Vec<(Duration, Blow)>,
    /// When all of that ends.
    pub heal_at: Duration,
    /// When every task must have ended at the latest.
    pub quiet_by: Duration,
}

/// Draws from a seed.
pub(crate) struct Dice(SeededRng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// At least `low`, below `high`.
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

    /// A rate in thousandths: none for a third of all worlds.
    fn rate(&self, max: u64) -> u32 {
        if self.chance(33) {
            return 0;
        }
        u32::try_from(self.range(0, max + 1)).unwrap_or(0)
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64, mode: Mode) -> Self {
        let dice = Dice::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ mode as u64);
        let count = |max| usize::try_from(dice.range(1, max)).unwrap_or(1);
        let hosts = match mode.is_fleet() {
            true => [3, 2, 1 + count(3)],
            false => [count(3), count(3), 1 + count(3)],
        };
        let skew_max = match mode {
            Mode::WildClocks => Duration::from_secs(300),
            _ if dice.chance(40) => Duration::ZERO,
            _ => Duration::from_millis(2_000),
        };
        let most = u64::try_from(skew_max.as_millis()).unwrap_or(0);
        let skew = |_| dice.range(0, 2 * most + 1).cast_signed() - most.cast_signed();
        let skews_ms = (0..hosts.iter().sum()).map(skew).collect();
        let jobs: Vec<Job> = ["mail", "report", "film"]
            .map(|name| job(name, &dice))
            .into();
        let heal_at = Duration::from_secs(match mode.is_fleet() {
            true => dice.range(30, 75),
            false => dice.range(15, 35),
        });
        let submits = work::submits(&dice, mode, jobs.len(), heal_at);
        let acts = work::acts(&dice, mode, submits.len(), heal_at);
        // Drawn apart from the rest, which is the same without them.
        let fleet_dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mode as u64);
        let fleet = mode
            .is_fleet()
            .then(|| Fleet::new(&fleet_dice, mode, hosts));
        let blows = match mode {
            Mode::Liveness => blows::for_good(&dice, hosts, &jobs),
            Mode::Fleet | Mode::FleetLiveness => {
                fleet::blows(&fleet_dice, mode, fleet.as_ref(), hosts, &jobs, heal_at)
            }
            _ => blows::passing(&dice, hosts, &jobs, heal_at, most),
        };
        let stalls = match mode {
            Mode::Safety | Mode::WildClocks | Mode::Fleet if fleet_dice.chance(50) => 20,
            _ => 0,
        };
        let slack = if mode == Mode::WildClocks { 4_000 } else { 240 };
        Self {
            seed,
            mode,
            hosts,
            skew_max,
            skews_ms,
            signals: dice.chance(50) && !mode.is_fleet(),
            stalls,
            economy: (fleet_dice.chance(50), fleet_dice.chance(50)),
            fleet,
            store: faults::store_faults(&dice, mode.is_fleet()),
            queue: faults::queue_faults(&dice, mode.is_fleet()),
            jobs,
            submits,
            acts,
            blows,
            heal_at,
            quiet_by: heal_at + Duration::from_secs(slack),
        }
    }

    /// The command that runs this scenario alone.
    pub fn replay(&self) -> String {
        let (seed, mode) = (self.seed, self.mode);
        format!("SEED={seed} MODE={mode:?} cargo test -p dueline-tests-simulation replay")
    }

    /// Hosts that never come back.
    pub fn lost(&self) -> BTreeSet<usize> {
        let blows = self.blows.iter();
        let lost = blows.filter_map(|(_, blow)| match blow {
            Blow::Crash(host, None) => Some(*host),
            Blow::Pause(host, lasts) if *lasts >= blows::FOR_GOOD => Some(*host),
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

    /// Jobs that the world takes away what they need.
    pub fn given_up(&self) -> BTreeSet<JobName> {
        let blows = self.blows.iter();
        let dead = blows.filter_map(|(_, blow)| match blow {
            Blow::DeadQueue(job) => Some(job.clone()),
            _ => None,
        });
        dead.collect()
    }

    /// Whether a host may begin something long after it was allowed to: it was paused, or clocks disagree.
    pub fn may_begin_late(&self) -> bool {
        let pauses = |(_, blow): &(_, Blow)| matches!(blow, Blow::Pause(..));
        !self.skew_max.is_zero() || self.stalls > 0 || self.blows.iter().any(pauses)
    }

    /// The id of the task with this number.
    pub fn task_id(number: usize) -> TaskId {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&(number as u64 + 1).to_be_bytes());
        TaskId::from_bytes(bytes)
    }
}

fn job(name: &str, dice: &Dice) -> Job {
    let backoff = |low, high| {
        let initial = dice.ms(low, high);
        Backoff::new(initial, 2.0, 0.2, Duration::from_secs(20)).unwrap_or_else(|_| unreachable!())
    };
    let heartbeat_timeout = Duration::from_secs(dice.range(3, 7));
    let policy = Policy {
        retry: RetryPolicy {
            retries_max: Some(u32::try_from(dice.range(0, 4)).unwrap_or(0)),
            standard: backoff(500, 8_000),
            worker_lost: dice.chance(30).then(|| backoff(1_000, 6_000)),
            ..RetryPolicy::default()
        },
        enqueue_timeout: Duration::from_secs(dice.range(3, 9)),
        claim_timeout: Duration::from_secs(dice.range(2, 5)),
        heartbeat_timeout,
        heartbeat_increment: heartbeat_timeout,
        run_timeout: dice
            .chance(30)
            .then(|| Duration::from_secs(dice.range(4, 15))),
        losses_max: u32::try_from(dice.range(2, 6)).unwrap_or(2),
        retention: None,
    };
    Job {
        name: JobName::parse(name).unwrap_or_else(|_| unreachable!()),
        info: "".into(),
        handler: Handler::worker(),
        policy,
        quota: Quota::default(),
        paused: false,
        created_by: "simulation".into(),
        created_at: BASE,
        changed_at: BASE,
    }
}
