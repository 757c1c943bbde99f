//! What makes a cluster a fleet: several of each, on services that others run.

use std::time::Duration;

use dueline_domain::{Job, Policy};
use dueline_testkit::{Hot, IndexFaults, QueueFaults, StoreFaults, StoreMethod};

use super::{Blow, Dice, Mode, Scenario, Submit, blows};
use crate::Script;

/// A member that was silent for this many intervals is gone, as consumers see it.
const SILENT_INTERVALS: u32 = 3;

/// What only a fleet has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Which consumers share the due partitions; the others read everything.
    pub shares: Vec<bool>,
    /// How often those that share say that they are there.
    pub membership: Duration,
    /// How many executors ask each controller.
    pub executors: usize,
    /// How the index of due tasks follows the store.
    pub index: IndexFaults,
    /// Time between the steps in which everything heals.
    pub heal_gap: Duration,
}

impl Fleet {
    pub(super) fn new(dice: &Dice, mode: Mode, hosts: [usize; 3]) -> Self {
        let lag_max = match dice.range(0, 10) {
            0 => Duration::ZERO,
            1..4 => dice.ms(100, 2_000),
            4..7 => dice.ms(2_000, 15_000),
            _ => Duration::from_secs(60),
        };
        // Nobody shares in some worlds, nearly everybody in most.
        let sharing = if dice.chance(20) { 0 } else { 90 };
        Self {
            shares: (0..hosts[0]).map(|_| dice.chance(sharing)).collect(),
            membership: dice.ms(500, 2_000),
            executors: 1 + dice.index(2),
            index: IndexFaults { lag_max, shards: 8 },
            heal_gap: match mode {
                Mode::FleetLiveness => dice.ms(1_000, 10_000),
                _ => Duration::ZERO,
            },
        }
    }

    /// Whether this host is a consumer that shares.
    pub fn shares(&self, host: usize) -> bool {
        self.shares.get(host).copied().unwrap_or(false)
    }

    /// After this long others take over the share of one that says nothing.
    pub fn missed_after(&self) -> Duration {
        self.membership * SILENT_INTERVALS
    }
}

impl Scenario {
    /// A fleet to which nothing bad happens, unless a test adds it: three consumers that share, two status
    /// controllers, three controllers with two executors each; `submits` tasks of three jobs come in evenly within
    /// `lasts`, half of them due at once and half a while later, some of which fail at first.
    pub fn calm_fleet(seed: u64, submits: u32, lasts: Duration) -> Self {
        let dice = Dice::new(seed ^ 0x5851_f42d_4c95_7f2d);
        let mut scenario = Self::new(seed, Mode::Fleet);
        let hosts = [3, 2, 3];
        let fleet = Fleet {
            shares: vec![true; hosts[0]],
            membership: Duration::from_secs(1),
            executors: 2,
            index: IndexFaults {
                lag_max: Duration::from_millis(500),
                shards: 8,
            },
            heal_gap: Duration::ZERO,
        };
        let (store_latency, queue_latency) = (dice.ms(5, 21), dice.ms(5, 21));
        let mut store = StoreFaults::default();
        store.rates.latency_max = store_latency;
        let queue = QueueFaults {
            never_starving: true,
            latency_max: queue_latency,
            ..QueueFaults::default()
        };
        for job in &mut scenario.jobs {
            job.policy = Policy {
                enqueue_timeout: Duration::from_secs(20),
                claim_timeout: Duration::from_secs(5),
                heartbeat_timeout: Duration::from_secs(6),
                heartbeat_increment: Duration::from_secs(6),
                losses_max: 10,
                retention: None,
                ..Policy::default()
            };
        }
        let jobs = scenario.jobs.len();
        let submit = |number: u32| Submit {
            // Not before the queues are there.
            at: Duration::from_secs(1) + (lasts * number / submits),
            job: usize::try_from(number).unwrap_or(0) % jobs,
            script: match dice.range(0, 10) {
                0 => Script::Fail(2),
                1 | 2 => Script::Succeed(dice.range(1_000, 4_000)),
                _ => Script::Succeed(dice.range(1, 500)),
            },
            delay: dice.chance(50).then(|| dice.ms(500, 5_000)),
            priority: 0,
            client_dies: false,
        };
        Self {
            hosts,
            skew_max: Duration::ZERO,
            skews_ms: vec![0; hosts.iter().sum()],
            signals: false,
            stalls: 0,
            fleet: Some(fleet),
            store,
            queue,
            submits: (0..submits).map(submit).collect(),
            acts: Vec::new(),
            blows: Vec::new(),
            heal_at: lasts,
            quiet_by: lasts + Duration::from_secs(240),
            ..scenario
        }
    }
}

/// What is done to a fleet: of each kind of blow that only a fleet knows at least one, and some of the others.
pub(super) fn blows(
    dice: &Dice,
    mode: Mode,
    fleet: Option<&Fleet>,
    hosts: [usize; 3],
    jobs: &[Job],
    heal_at: Duration,
) -> Vec<(Duration, Blow)> {
    let missed_after = fleet.map_or(Duration::ZERO, Fleet::missed_after);
    let job = || jobs[dice.index(jobs.len())].name.clone();
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let mut all = blows::passing(dice, hosts, jobs, heal_at, 0);
    if mode == Mode::FleetLiveness {
        // Clocks are not what this is about, and a host that is gone for good must not come back.
        all.retain(|(_, blow)| {
            !matches!(blow, Blow::Clock(..) | Blow::Crash(..) | Blow::Pause(..))
        });
        let mut first = 0;
        for count in hosts {
            // One of each kind stays.
            for host in first + 1..first + count {
                let at = dice.ms(0, window * 2 / 3);
                match dice.range(0, 6) {
                    0 => all.push((at, Blow::Crash(host, None))),
                    1 => all.push((at, Blow::Pause(host, blows::FOR_GOOD))),
                    _ => {}
                }
            }
            all.push((
                dice.ms(0, window),
                Blow::Crash(first, Some(dice.ms(500, 8_000))),
            ));
            first += count;
        }
    } else {
        let consumer = || dice.index(hosts[0]);
        let back = Some(dice.ms(100, 15_000));
        all.push((dice.ms(0, window), Blow::Crash(consumer(), back)));
        let long = missed_after + dice.ms(500, 6_000);
        all.push((dice.ms(0, window), Blow::Pause(consumer(), long)));
    }
    let methods = [
        StoreMethod::Apply,
        StoreMethod::Due,
        StoreMethod::Create,
        StoreMethod::Get,
        StoreMethod::PutWorkers,
    ];
    for _ in 0..=dice.index(2) {
        let hot = match dice.chance(50) {
            true => Hot::Job(job()),
            false => Hot::Method(methods[dice.index(methods.len())]),
        };
        let rate = u32::try_from(dice.range(600, 1_000)).unwrap_or(600);
        all.push((
            dice.ms(0, window),
            Blow::Hot(hot, rate, dice.ms(2_000, 25_000)),
        ));
    }
    all.push((
        dice.ms(0, window),
        Blow::LoseQueue(job(), dice.ms(1_000, 60_000)),
    ));
    all.sort_by_key(|(at, _)| *at);
    all
}
