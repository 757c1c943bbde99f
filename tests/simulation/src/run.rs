//! Runs worlds, each in a runtime of its own whose time jumps when everybody waits.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use dueline_testkit::Counters;

use crate::{Bad, Mode, Report, Scenario, recorder::MetricsTap, world};

/// Plays the world of a seed.
pub fn run(seed: u64, mode: Mode, bad: Option<Bad>) -> Report {
    play(Scenario::new(seed, mode), bad)
}

/// Plays a world.
pub fn play(scenario: Scenario, bad: Option<Bad>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| panic!("failed to build a runtime: {error}"));
    let counters = Counters::new();
    let world = world::play(scenario, bad, counters.clone());
    metrics::with_local_recorder(&MetricsTap(counters), || runtime.block_on(world))
}

/// Plays the worlds of many seeds on all cores. Panics when a promise was broken, with the command that replays the
/// world; answers what happened over all of them.
pub fn run_all(seeds: Range<u64>, mode: Mode) -> Counters {
    let (counters, broken) = (Counters::new(), Mutex::new(Vec::new()));
    let next = AtomicU64::new(seeds.start);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let report = run(seed, mode, None);
            counters.merge(&report.counters);
            if !report.failures.is_empty() {
                let mut broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
                broken.push((seed, report.failures));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    broken.sort();
    let told = broken.iter().map(|(seed, failures)| {
        let (failures, replay) = (failures.join("\n  "), Scenario::new(*seed, mode).replay());
        format!("seed {seed}:\n  {failures}\nreplay it with\n  {replay}\n")
    });
    let told: Vec<_> = told.collect();
    assert!(
        told.is_empty(),
        "{} worlds\n{}",
        told.len(),
        told.join("\n")
    );
    counters
}

/// The first seed whose world shows that the promise `by` is broken.
pub fn first_broken(seeds: Range<u64>, mode: Mode, bad: Bad, by: &str) -> Option<u64> {
    seeds.into_iter().find(|seed| {
        let failures = run(*seed, mode, Some(bad)).failures;
        failures.iter().any(|failure| failure.starts_with(by))
    })
}
