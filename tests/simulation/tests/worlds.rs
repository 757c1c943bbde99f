//! Many worlds, each from its seed: no promise is broken in any, and everything interesting happens in some.

use std::ops::Range;

use dueline_testkit::Counters;
use dueline_tests_simulation::{Mode, run, run_all};

/// What must happen at least once over the safety worlds; otherwise they prove nothing about it.
const SOMETIMES: [&str; 55] = [
    "cancel beat claim",
    "cancelled before a claim",
    "claim of a leaver taken back",
    "clock jumped",
    "crash",
    "cut off",
    "due row late",
    "due row moved",
    "due task enqueued",
    "failed for good",
    "failed for now",
    "given back",
    "heartbeat",
    "host crashed",
    "host stopped in order",
    "lost run waits",
    "message doubled",
    "message late",
    "message lost",
    "message lost after receive",
    "messages reordered",
    "modified",
    "own write recognised",
    "pause",
    "pause before user code",
    "poison trashed",
    "queue deleted",
    "queue entry failed",
    "queue entry failed but sent",
    "queue outage",
    "queue timed out after",
    "queue unavailable",
    "redriven",
    "retries exhausted",
    "retries exhausted by lost runs",
    "retry enqueued",
    "run stopped on request",
    "stale due row skipped",
    "stale message dropped",
    "start and outcome in one write",
    "start in its own write",
    "status answer lost",
    "status call lost",
    "stop asked for",
    "store executed twice",
    "store item left out",
    "store outage",
    "store throttled",
    "store timed out after",
    "store timed out before",
    "store unavailable",
    "submit recognised",
    "watchdog took back claimed",
    "watchdog took back enqueued",
    "watchdog took back processing",
];

/// And over all of them, what shows that fencing was needed.
const ZOMBIES: [&str; 4] = [
    "user code began after its claim was lost",
    "zombie tried to finish",
    "zombie tried to heartbeat",
    "zombie tried to start",
];

/// What only a fleet meets, and must meet at least once.
const IN_A_FLEET: [&str; 22] = [
    "due page empty",
    "due page short",
    "heartbeat answered from memory",
    "index out of order",
    "index row late",
    "index row stale",
    "member came back as another one",
    "member paused for longer than others wait",
    "claim and start in one write",
    "start in its own write",
    "queue deleted",
    "queue not made again yet",
    "share given to others",
    "share read",
    "share taken over",
    "stale due row skipped",
    "store batch done in part",
    "store hot",
    "store writes conflicted",
    "workers stored in part",
    "own write recognised",
    "submit recognised",
];

/// The first seeds; `SEEDS` in the environment asks for more.
fn seeds(least: u64) -> Range<u64> {
    let wanted = std::env::var("SEEDS")
        .ok()
        .and_then(|count| count.parse().ok());
    0..wanted.map_or(least, |wanted: u64| wanted.max(least))
}

/// Worlds in which nothing happens show nothing.
#[track_caller]
fn all_happened(counters: &Counters, expected: &[&'static str]) {
    let missing = counters.missing(expected);
    assert_eq!(missing, [""; 0], "{:#?}", counters.all());
}

#[test]
fn no_promise_is_broken_in_safety_worlds_and_all_that_matters_happens() {
    let counters = run_all(seeds(500), Mode::Safety);
    all_happened(&counters, &SOMETIMES);
    // The first of them needs more luck than clocks that are right have to offer.
    all_happened(&counters, &ZOMBIES[1..]);
}

#[test]
fn no_promise_is_broken_when_clocks_are_wrong_by_minutes() {
    let counters = run_all(seeds(60), Mode::WildClocks);
    all_happened(&counters, &ZOMBIES);
}

#[test]
fn whatever_is_healthy_goes_on_when_the_rest_is_dead_for_good() {
    let counters = run_all(seeds(200), Mode::Liveness);
    let expected = [
        "crash",
        "pause",
        "cut off",
        "queue dead",
        "succeeded after a retry",
    ];
    all_happened(&counters, &expected);
}

#[test]
fn f_117_a_fleet_loses_nothing_whatever_its_services_do() {
    let counters = run_all(seeds(100), Mode::Fleet);
    let expected = [&IN_A_FLEET[..], &ZOMBIES[1..]].concat();
    all_happened(&counters, &expected);
}

#[test]
fn f_117_a_fleet_that_heals_step_by_step_finishes_everything_and_then_makes_no_errors() {
    let counters = run_all(seeds(50), Mode::FleetLiveness);
    let expected = [
        "index row late",
        "pause",
        "crash",
        "share taken over",
        "store hot",
    ];
    all_happened(&counters, &expected);
}

#[test]
fn the_same_seed_makes_the_same_history() {
    let modes = [
        (Mode::Safety, 15),
        (Mode::WildClocks, 5),
        (Mode::Liveness, 10),
        (Mode::Fleet, 8),
        (Mode::FleetLiveness, 5),
    ];
    for (mode, seeds) in modes {
        for seed in 0..seeds {
            let (once, again) = (run(seed, mode, None), run(seed, mode, None));
            if once.fingerprint == again.fingerprint {
                continue;
            }
            let (once, again) = (once.history.entries(), again.history.entries());
            let same = |(a, b): &(_, _)| format!("{a:?}") == format!("{b:?}");
            let common = once.iter().zip(&again).take_while(same).count();
            panic!(
                "seed {seed} of {mode:?} differs at entry {common}:\n{:?}\n{:?}",
                once.get(common),
                again.get(common)
            );
        }
    }
}
