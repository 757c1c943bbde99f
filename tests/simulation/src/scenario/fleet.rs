//! Fleets: several processes of each role, on a store and queues that are external services.

use std::time::Duration;

use dueline_domain::{Job, Policy};
use dueline_testkit::{HotSpot, IndexFaults, QueueFaults, StoreFaults, StoreMethod};

use super::{
    Disruption, PlannedFamily, PlannedSubmit, Scenario, ScenarioRng, WorldMode, disruptions,
};
use crate::TaskScript;

/// Consumers treat a member as gone after this many intervals without a registration.
const SILENT_INTERVALS_MAX: u32 = 3;

/// The settings that only fleets have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// For each consumer whether it shares the due partitions; the others read all partitions.
    pub shares: Vec<bool>,
    /// How often sharing consumers register.
    pub membership_interval: Duration,
    /// Executors of each controller.
    pub executors: usize,
    /// How the due index lags behind the store.
    pub index: IndexFaults,
    /// Time between the steps of healing.
    pub heal_gap: Duration,
}

impl FleetSettings {
    pub(super) fn new(rng: &ScenarioRng, mode: WorldMode, hosts: [usize; 3]) -> Self {
        let lag_max = match rng.range(0, 10) {
            0 => Duration::ZERO,
            1..4 => rng.ms(100, 2_000),
            4..7 => rng.ms(2_000, 15_000),
            _ => Duration::from_secs(60),
        };
        // In some worlds no consumer shares; in most nearly all do.
        let sharing = if rng.chance(20) { 0 } else { 90 };
        Self {
            shares: (0..hosts[0]).map(|_| rng.chance(sharing)).collect(),
            membership_interval: rng.ms(500, 2_000),
            executors: 1 + rng.index(2),
            index: IndexFaults { lag_max, shards: 8 },
            heal_gap: match mode {
                WorldMode::FleetLiveness => rng.ms(1_000, 10_000),
                _ => Duration::ZERO,
            },
        }
    }

    /// Whether this host is a consumer that shares the due partitions.
    pub fn shares(&self, host: usize) -> bool {
        self.shares.get(host).copied().unwrap_or(false)
    }

    /// After this time without a registration, other consumers take over a member's share.
    pub fn silent_after(&self) -> Duration {
        self.membership_interval * SILENT_INTERVALS_MAX
    }
}

impl Scenario {
    /// A fleet without disruptions, to which a test may add some: three consumers that share, two status controllers,
    /// three controllers with two executors each. `submits` tasks of three jobs are submitted evenly within `lasts`.
    /// Half of them are due at once and half later; some fail at first.
    pub fn calm_fleet(seed: u64, submits: u32, lasts: Duration) -> Self {
        let rng = ScenarioRng::new(seed ^ 0x5851_f42d_4c95_7f2d);
        let mut scenario = Self::new(seed, WorldMode::Fleet);
        let hosts = [3, 2, 3];
        let fleet = FleetSettings {
            shares: vec![true; hosts[0]],
            membership_interval: Duration::from_secs(1),
            executors: 2,
            index: IndexFaults {
                lag_max: Duration::from_millis(500),
                shards: 8,
            },
            heal_gap: Duration::ZERO,
        };
        let (store_latency, queue_latency) = (rng.ms(5, 21), rng.ms(5, 21));
        let mut store = StoreFaults::default();
        store.rates.latency_max = store_latency;
        let queue = QueueFaults {
            unbounded: true,
            latency_max: queue_latency,
            ..QueueFaults::default()
        };
        for (number, job) in scenario.jobs.iter_mut().enumerate() {
            job.policy = Policy {
                enqueue_timeout: Duration::from_secs(20),
                claim_timeout: Duration::from_secs(5),
                heartbeat_timeout: Duration::from_secs(6),
                heartbeat_increment: Duration::from_secs(6),
                losses_max: 10,
                retention: None,
                sink: number.is_multiple_of(2).then(super::sink),
                ..Policy::default()
            };
        }
        let jobs = scenario.jobs.len();
        let submit = |number: u32| PlannedSubmit {
            // The queues exist by then.
            at: Duration::from_secs(1) + (lasts * number / submits),
            job: usize::try_from(number).unwrap_or(0) % jobs,
            script: match rng.range(0, 10) {
                0 => TaskScript::Fail(2),
                1 | 2 => TaskScript::Succeed(rng.range(1_000, 4_000)),
                _ => TaskScript::Succeed(rng.range(1, 500)),
            },
            delay: rng.chance(50).then(|| rng.ms(500, 5_000)),
            priority: 0,
            client_dies: false,
            family: PlannedFamily::default(),
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
            user_actions: Vec::new(),
            disruptions: Vec::new(),
            heal_at: lasts,
            quiet_by: lasts + Duration::from_secs(240),
            ..scenario
        }
    }
}

/// The disruptions of a fleet: at least one of each kind that is specific to fleets, and some of the others.
pub(super) fn disruptions(
    rng: &ScenarioRng,
    mode: WorldMode,
    fleet: Option<&FleetSettings>,
    hosts: [usize; 3],
    jobs: &[Job],
    heal_at: Duration,
) -> Vec<(Duration, Disruption)> {
    let silent_after = fleet.map_or(Duration::ZERO, FleetSettings::silent_after);
    let job = || jobs[rng.index(jobs.len())].name.clone();
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let mut all = disruptions::transient(rng, hosts, jobs, heal_at, 0);
    if mode == WorldMode::FleetLiveness {
        // This mode is not about clocks, and hosts that are lost for good must stay lost.
        all.retain(|(_, disruption)| {
            !matches!(
                disruption,
                Disruption::ClockJump(..) | Disruption::Crash(..) | Disruption::Pause(..)
            )
        });
        let mut first = 0;
        for count in hosts {
            // One host of each kind survives.
            for host in first + 1..first + count {
                let at = rng.ms(0, window * 2 / 3);
                match rng.range(0, 6) {
                    0 => all.push((at, Disruption::Crash(host, None))),
                    1 => all.push((at, Disruption::Pause(host, disruptions::FOREVER))),
                    _ => {}
                }
            }
            all.push((
                rng.ms(0, window),
                Disruption::Crash(first, Some(rng.ms(500, 8_000))),
            ));
            first += count;
        }
    } else {
        let consumer = || rng.index(hosts[0]);
        let restart_after = Some(rng.ms(100, 15_000));
        all.push((
            rng.ms(0, window),
            Disruption::Crash(consumer(), restart_after),
        ));
        let long = silent_after + rng.ms(500, 6_000);
        all.push((rng.ms(0, window), Disruption::Pause(consumer(), long)));
    }
    let methods = [
        StoreMethod::Apply,
        StoreMethod::Due,
        StoreMethod::Create,
        StoreMethod::Get,
        StoreMethod::PutWorkers,
    ];
    for _ in 0..=rng.index(2) {
        let hot = match rng.chance(50) {
            true => HotSpot::Job(job()),
            false => HotSpot::Method(methods[rng.index(methods.len())]),
        };
        let rate = u32::try_from(rng.range(600, 1_000)).unwrap_or(600);
        all.push((
            rng.ms(0, window),
            Disruption::HotSpot(hot, rate, rng.ms(2_000, 25_000)),
        ));
    }
    all.push((
        rng.ms(0, window),
        Disruption::DeleteAndBlockQueue(job(), rng.ms(1_000, 60_000)),
    ));
    all.sort_by_key(|(at, _)| *at);
    all
}
