//! Disruptions of hosts, links, clocks, the store and the queues.

use std::time::Duration;

use dueline_domain::{Job, JobName};
use dueline_testkit::HotSpot;

use super::ScenarioRng;

/// Longer than any world.
pub(super) const FOREVER: Duration = Duration::from_secs(86_400);

/// The kinds of hosts, in the order in which they are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// A consumer.
    Consumer,
    /// A status controller.
    Status,
    /// A controller with its executors.
    Worker,
}

/// A disruption that the nemesis injects. Hosts are numbered: consumers first, then status controllers, then workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// The host's process dies; a new one starts after this time, or never.
    Crash(usize, Option<Duration>),
    /// The host is paused for this time.
    Pause(usize, Duration),
    /// The host's process is shut down in order, and a new one starts when it has ended.
    Restart(usize),
    /// The host reaches neither its store nor any status controller for this time.
    CutOff(usize, Duration),
    /// The store is unreachable from all hosts and clients for this time.
    StoreOutage(Duration),
    /// The queues are unreachable from all hosts and clients for this time.
    QueueOutage(Duration),
    /// The queue of this job is deleted.
    DeleteQueue(JobName),
    /// The queue of this job is deleted, and cannot be created again for this time.
    DeleteAndBlockQueue(JobName, Duration),
    /// This part of the store throttles requests at this rate, in thousandths, for this time.
    HotSpot(HotSpot, u32, Duration),
    /// The queue of this job delivers nothing from now on.
    DeadQueue(JobName),
    /// The clock of the host is off by this many milliseconds from now on.
    ClockJump(usize, i64),
}

/// Disruptions that end by themselves, or when the world heals.
pub(super) fn transient(
    rng: &ScenarioRng,
    hosts: [usize; 3],
    jobs: &[Job],
    heal_at: Duration,
    skew_max_ms: u64,
) -> Vec<(Duration, Disruption)> {
    let all: usize = hosts.iter().sum();
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let disruption = |_| {
        let host = rng.index(all);
        let worker = hosts[0] + hosts[1] + rng.index(hosts[2]);
        let skew = rng.range(0, 2 * skew_max_ms + 1).cast_signed() - skew_max_ms.cast_signed();
        let disruption = match rng.range(0, 14) {
            0..3 => Disruption::Crash(host, Some(rng.ms(100, 8_000))),
            3 | 4 => Disruption::Crash(worker, Some(rng.ms(100, 8_000))),
            5 | 6 => Disruption::Pause(host, rng.ms(500, 9_000)),
            7 => Disruption::Restart(host),
            8 => Disruption::Restart(worker),
            9 => Disruption::CutOff(worker, rng.ms(500, 9_000)),
            10 => Disruption::StoreOutage(rng.ms(200, 6_000)),
            11 => Disruption::QueueOutage(rng.ms(200, 6_000)),
            12 => Disruption::DeleteQueue(jobs[rng.index(jobs.len())].name.clone()),
            _ => Disruption::ClockJump(host, skew),
        };
        (rng.ms(0, window), disruption)
    };
    let mut disruptions: Vec<_> = (0..rng.range(2, 10)).map(disruption).collect();
    disruptions.sort_by_key(|(at, _)| *at);
    disruptions
}

/// Disruptions that never end. One host of each kind, the store and the queues of the other jobs stay healthy.
pub(super) fn permanent(
    rng: &ScenarioRng,
    hosts: [usize; 3],
    jobs: &[Job],
) -> Vec<(Duration, Disruption)> {
    let mut disruptions = Vec::new();
    let mut first = 0;
    for count in hosts {
        for host in first + 1..first + count {
            let at = rng.ms(0, 10_000);
            match rng.range(0, 3) {
                0 => disruptions.push((at, Disruption::Crash(host, None))),
                1 => disruptions.push((at, Disruption::Pause(host, FOREVER))),
                _ => disruptions.push((at, Disruption::CutOff(host, FOREVER))),
            }
        }
        first += count;
    }
    if rng.chance(60) {
        let job = jobs[rng.index(jobs.len())].name.clone();
        disruptions.push((rng.ms(0, 10_000), Disruption::DeadQueue(job)));
    }
    disruptions.sort_by_key(|(at, _)| *at);
    disruptions
}
