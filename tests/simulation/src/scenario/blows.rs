//! What is done to hosts, links and clocks.

use std::time::Duration;

use dueline_domain::{Job, JobName};
use dueline_testkit::Hot;

use super::Dice;

/// Longer than any world lasts.
pub(super) const FOR_GOOD: Duration = Duration::from_secs(86_400);

/// The kinds of hosts, in the order in which they are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// A consumer.
    Consumer,
    /// A status controller.
    Status,
    /// A controller with its executor.
    Worker,
}

/// Something bad. Hosts have one number each: consumers first, then status controllers, then workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The host is gone at once; another takes its place after this long, if ever.
    Crash(usize, Option<Duration>),
    /// Nothing the host does gets through for this long.
    Pause(usize, Duration),
    /// The host is told to stop, and started again when it has.
    Restart(usize),
    /// The host cannot reach any status controller, or its store, for this long.
    CutOff(usize, Duration),
    /// Nobody can reach the store for this long.
    StoreOutage(Duration),
    /// Nobody can reach the queue for this long, or ever again.
    QueueOutage(Duration),
    /// Somebody deletes the queue of this job.
    DropQueue(JobName),
    /// Somebody deletes the queue of this job, and for this long it cannot be made again.
    LoseQueue(JobName, Duration),
    /// This part of the store refuses so often, in thousandths, for this long.
    Hot(Hot, u32, Duration),
    /// The queue of this job delivers nothing any more.
    DeadQueue(JobName),
    /// The clock of the host is wrong by this many milliseconds from now on.
    Clock(usize, i64),
}

/// Blows that pass, or are healed in the end.
pub(super) fn passing(
    dice: &Dice,
    hosts: [usize; 3],
    jobs: &[Job],
    heal_at: Duration,
    skew_max_ms: u64,
) -> Vec<(Duration, Blow)> {
    let all: usize = hosts.iter().sum();
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let blow = |_| {
        let host = dice.index(all);
        let worker = hosts[0] + hosts[1] + dice.index(hosts[2]);
        let skew = dice.range(0, 2 * skew_max_ms + 1).cast_signed() - skew_max_ms.cast_signed();
        let blow = match dice.range(0, 14) {
            0..3 => Blow::Crash(host, Some(dice.ms(100, 8_000))),
            3 | 4 => Blow::Crash(worker, Some(dice.ms(100, 8_000))),
            5 | 6 => Blow::Pause(host, dice.ms(500, 9_000)),
            7 => Blow::Restart(host),
            8 => Blow::Restart(worker),
            9 => Blow::CutOff(worker, dice.ms(500, 9_000)),
            10 => Blow::StoreOutage(dice.ms(200, 6_000)),
            11 => Blow::QueueOutage(dice.ms(200, 6_000)),
            12 => Blow::DropQueue(jobs[dice.index(jobs.len())].name.clone()),
            _ => Blow::Clock(host, skew),
        };
        (dice.ms(0, window), blow)
    };
    let mut blows: Vec<_> = (0..dice.range(2, 10)).map(blow).collect();
    blows.sort_by_key(|(at, _)| *at);
    blows
}

/// Blows for good. One host of each kind, the store and the queues of the other jobs stay healthy.
pub(super) fn for_good(dice: &Dice, hosts: [usize; 3], jobs: &[Job]) -> Vec<(Duration, Blow)> {
    let mut blows = Vec::new();
    let mut first = 0;
    for count in hosts {
        for host in first + 1..first + count {
            let at = dice.ms(0, 10_000);
            match dice.range(0, 3) {
                0 => blows.push((at, Blow::Crash(host, None))),
                1 => blows.push((at, Blow::Pause(host, FOR_GOOD))),
                _ => blows.push((at, Blow::CutOff(host, FOR_GOOD))),
            }
        }
        first += count;
    }
    if dice.chance(60) {
        let job = jobs[dice.index(jobs.len())].name.clone();
        blows.push((dice.ms(0, 10_000), Blow::DeadQueue(job)));
    }
    blows.sort_by_key(|(at, _)| *at);
    blows
}
