//! Plays one world again, as told by the environment.

use dueline_tests_simulation::{Mode, Scenario, run};

#[test]
fn replay() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let mode = match std::env::var("MODE").as_deref() {
        Ok("Liveness") => Mode::Liveness,
        Ok("WildClocks") => Mode::WildClocks,
        Ok("Fleet") => Mode::Fleet,
        Ok("FleetLiveness") => Mode::FleetLiveness,
        _ => Mode::Safety,
    };
    let scenario = Scenario::new(seed.unwrap_or(0), mode);
    let report = run(scenario.seed, mode, None);
    // Without a seed this only shows that it works.
    if seed.is_some() {
        println!("{scenario:#?}");
        for entry in report.history.entries() {
            println!("{} {:?}", entry.at, entry.what);
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
