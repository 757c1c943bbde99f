//! Runs worlds, each in its own runtime. Time jumps ahead whenever all tasks of the runtime wait.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use dueline_testkit::Counters;

use crate::{
    PlantedBug, Scenario, WorldMode, WorldReport, metrics_recorder::MetricsCapture, world,
};

/// Plays the world of a seed.
pub fn run(seed: u64, mode: WorldMode, bug: Option<PlantedBug>) -> WorldReport {
    play(Scenario::new(seed, mode), bug)
}

/// Plays a world.
pub fn play(scenario: Scenario, bug: Option<PlantedBug>) -> WorldReport {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| panic!("failed to build a runtime: {error}"));
    let counters = Counters::new();
    let world = world::play(scenario, bug, counters.clone());
    metrics::with_local_recorder(&MetricsCapture(counters), || runtime.block_on(world))
}

/// Plays the worlds of many seeds on all cores and returns the counters of all of them. Panics when a property was
/// violated, with the command that replays the world.
pub fn run_all(seeds: Range<u64>, mode: WorldMode) -> Counters {
    let (counters, failed) = (Counters::new(), Mutex::new(Vec::new()));
    let next = AtomicU64::new(seeds.start);
    let run_seeds = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let report = run(seed, mode, None);
            counters.merge(&report.counters);
            if !report.failures.is_empty() {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.push((seed, report.failures));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run_seeds);
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort();
    let failures = failed.iter().map(|(seed, failures)| {
        let (failures, replay) = (failures.join("\n  "), Scenario::new(*seed, mode).replay());
        format!("seed {seed}:\n  {failures}\nreplay it with\n  {replay}\n")
    });
    let failures: Vec<_> = failures.collect();
    assert!(
        failures.is_empty(),
        "{} worlds failed\n{}",
        failures.len(),
        failures.join("\n")
    );
    counters
}

/// The first seed whose world violates this property.
pub fn first_violation(
    seeds: Range<u64>,
    mode: WorldMode,
    bug: PlantedBug,
    property: &str,
) -> Option<u64> {
    seeds.into_iter().find(|seed| {
        let failures = run(*seed, mode, Some(bug)).failures;
        failures.iter().any(|failure| failure.starts_with(property))
    })
}
