//! Replays the world that `SEED` and `MODE` in the environment name.

use dueline_tests_simulation::{Scenario, WorldMode, run};

#[test]
fn replay() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let mode = match std::env::var("MODE").as_deref() {
        Ok("Liveness") => WorldMode::Liveness,
        Ok("WildClocks") => WorldMode::WildClocks,
        Ok("Fleet") => WorldMode::Fleet,
        Ok("FleetLiveness") => WorldMode::FleetLiveness,
        Ok("Families") => WorldMode::Families,
        Ok("FleetFamilies") => WorldMode::FleetFamilies,
        Ok("Schedules") => WorldMode::Schedules,
        Ok("FleetSchedules") => WorldMode::FleetSchedules,
        _ => WorldMode::Safety,
    };
    let scenario = Scenario::new(seed.unwrap_or(0), mode);
    let report = run(scenario.seed, mode, None);
    // Without a seed this only checks that a replay works.
    if seed.is_some() {
        println!("{scenario:#?}");
        for entry in report.history.entries() {
            println!("{} {:?}", entry.at, entry.event);
        }
        println!("{:#?}", report.counters.all());
    }
    assert!(
        report.failures.is_empty(),
        "{}\n  {}",
        scenario.replay(),
        report.failures.join("\n  ")
    );
}
