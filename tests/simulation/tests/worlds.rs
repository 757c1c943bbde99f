//! Many worlds, each from its seed: no property is violated in any, and every expected event happens in some.

use std::ops::Range;

use dueline_testkit::Counters;
use dueline_tests_simulation::{WorldMode, run, run_all};

/// Events that must happen at least once over all safety worlds; otherwise the worlds prove nothing about them.
const SAFETY_EVENTS: [&str; 61] = [
    "answer of a delivery lost",
    "cancel beat claim",
    "cancelled before a claim",
    "claim of a lost worker reclaimed",
    "clock jumped",
    "crash",
    "cut off",
    "delivery failed",
    "delivery refused",
    "delivery settled",
    "due row late",
    "due row moved",
    "due task enqueued",
    "failed for good",
    "failed for now",
    "abandoned",
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
    "record delivered",
    "redriven",
    "redriven while it owed",
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
    "stop requested",
    "store executed twice",
    "store item left out",
    "store outage",
    "store throttled",
    "store timed out after",
    "store timed out before",
    "store unavailable",
    "submit recognised",
    "watchdog reclaimed claimed",
    "watchdog reclaimed enqueued",
    "watchdog reclaimed processing",
];

/// Events that show that fencing was needed; they must happen over all worlds together.
const ZOMBIE_EVENTS: [&str; 4] = [
    "user code began after its claim was lost",
    "zombie tried to finish",
    "zombie tried to heartbeat",
    "zombie tried to start",
];

/// Events that are specific to fleets and must happen at least once.
const FLEET_EVENTS: [&str; 22] = [
    "due page empty",
    "due page short",
    "heartbeat answered from memory",
    "index out of order",
    "index row late",
    "index row stale",
    "member restarted under a new id",
    "member paused past its silence limit",
    "claim and start in one write",
    "start in its own write",
    "queue deleted",
    "queue not created again yet",
    "share reduced",
    "share read",
    "share extended",
    "stale due row skipped",
    "store batch done in part",
    "store hot",
    "store writes conflicted",
    "workers stored in part",
    "own write recognised",
    "submit recognised",
];

/// The first `min` seeds; `SEEDS` in the environment sets a larger count.
fn seeds(min: u64) -> Range<u64> {
    let count = std::env::var("SEEDS")
        .ok()
        .and_then(|count| count.parse().ok());
    0..count.map_or(min, |count: u64| count.max(min))
}

/// Worlds without these events would prove nothing about them.
#[track_caller]
fn assert_all_happened(counters: &Counters, expected: &[&'static str]) {
    let missing = counters.missing(expected);
    assert_eq!(missing, [""; 0], "{:#?}", counters.all());
}

#[test]
fn no_property_is_violated_in_safety_worlds_and_every_expected_event_happens() {
    let counters = run_all(seeds(500), WorldMode::Safety);
    assert_all_happened(&counters, &SAFETY_EVENTS);
    // The first of them is too rare while clocks are right.
    assert_all_happened(&counters, &ZOMBIE_EVENTS[1..]);
}

#[test]
fn no_property_is_violated_when_clocks_are_off_by_minutes() {
    let counters = run_all(seeds(60), WorldMode::WildClocks);
    assert_all_happened(&counters, &ZOMBIE_EVENTS);
}

#[test]
fn healthy_jobs_and_hosts_continue_when_the_others_are_dead_for_good() {
    let counters = run_all(seeds(200), WorldMode::Liveness);
    let expected = [
        "crash",
        "pause",
        "cut off",
        "queue dead",
        "succeeded after a retry",
    ];
    assert_all_happened(&counters, &expected);
}

#[test]
fn f_117_a_fleet_loses_no_task_whatever_faults_its_services_have() {
    let counters = run_all(seeds(100), WorldMode::Fleet);
    let expected = [&FLEET_EVENTS[..], &ZOMBIE_EVENTS[1..]].concat();
    assert_all_happened(&counters, &expected);
}

/// Events of worlds with families.
const FAMILY_EVENTS: [&str; 4] = [
    "waiting task went on",
    "waiting task cancelled",
    "staged task went on",
    "staged task discarded",
];

#[test]
fn f_095_a_13_tasks_that_wait_go_on_in_order_whatever_faults_the_store_has() {
    let counters = run_all(seeds(80), WorldMode::Families);
    assert_all_happened(&counters, &FAMILY_EVENTS);
}

#[test]
fn f_095_a_13_tasks_that_wait_go_on_in_order_in_a_fleet() {
    let counters = run_all(seeds(30), WorldMode::FleetFamilies);
    assert_all_happened(&counters, &FAMILY_EVENTS);
}

/// Events of worlds with schedules.
const SCHEDULE_EVENTS: [&str; 12] = [
    "backfill carried out",
    "clock jumped",
    "due schedule late",
    "due schedule read before its change",
    "firing carried out",
    "firing dropped by a new rule",
    "firing met by a second turn",
    "firing missed",
    "firing skipped",
    "firing skipped by a pause",
    "firing waited",
    "requested firing carried out",
];

#[test]
fn f_104_g_05_no_firing_is_lost_doubled_or_early_whatever_faults_the_store_has() {
    let counters = run_all(seeds(150), WorldMode::Schedules);
    assert_all_happened(&counters, &SCHEDULE_EVENTS);
    assert_all_happened(&counters, &["schedule had changed"]);
}

#[test]
fn f_104_g_05_no_firing_is_lost_doubled_or_early_in_a_fleet() {
    let counters = run_all(seeds(40), WorldMode::FleetSchedules);
    assert_all_happened(
        &counters,
        &["firing carried out", "firing met by a second turn"],
    );
    assert_all_happened(&counters, &["schedule had changed", "schedule index late"]);
}

#[test]
fn f_117_a_fleet_that_heals_step_by_step_finishes_every_task_and_then_has_no_errors() {
    let counters = run_all(seeds(50), WorldMode::FleetLiveness);
    let expected = [
        "index row late",
        "pause",
        "crash",
        "share extended",
        "store hot",
    ];
    assert_all_happened(&counters, &expected);
}

#[test]
fn the_same_seed_makes_the_same_history() {
    let modes = [
        (WorldMode::Safety, 15),
        (WorldMode::WildClocks, 5),
        (WorldMode::Liveness, 10),
        (WorldMode::Fleet, 8),
        (WorldMode::FleetLiveness, 5),
        (WorldMode::Families, 8),
        (WorldMode::FleetFamilies, 4),
        (WorldMode::Schedules, 8),
        (WorldMode::FleetSchedules, 4),
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
