//! One blow at a time to a fleet that is well otherwise: how far does it reach?

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::JobName;
use dueline_testkit::{Entry, Hot, StoreMethod, What};
use dueline_tests_simulation::{Bad, Blow, Report, Scenario, play, waits};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// When the blow comes, how long it lasts, and how long tasks come in.
const BEGINS: Duration = secs(10);
const LASTS: Duration = secs(40);
const SUBMITS_END: Duration = secs(60);
/// The period of a poll, and two seconds for everything else.
const IN_TIME: Duration = secs(3);

fn fleet(seed: u64) -> Scenario {
    Scenario::calm_fleet(seed, 240, SUBMITS_END)
}

fn played(scenario: Scenario, bad: Option<Bad>) -> Report {
    let seed = scenario.seed;
    let report = play(scenario, bad);
    let failures = &report.failures;
    assert!(failures.is_empty(), "seed {seed}:\n{}", failures.join("\n"));
    report
}

/// The longest wait of any task, by job.
fn longest_waits(report: &Report) -> BTreeMap<JobName, Duration> {
    let mut longest: BTreeMap<JobName, Duration> = BTreeMap::new();
    for wait in waits(&report.history) {
        let waited = wait.waited.unwrap_or_else(|| panic!("never ran: {wait:?}"));
        let longest = longest.entry(wait.job).or_default();
        *longest = waited.max(*longest);
    }
    longest
}

fn hot(scenario: &Scenario, hot: Hot, per_mille: u32) -> Scenario {
    let mut scenario = scenario.clone();
    scenario
        .blows
        .push((BEGINS, Blow::Hot(hot, per_mille, LASTS)));
    scenario
}

/// The store's requests while it was hot, and what they were without.
fn requests(report: &Report, calm: &Report) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let of = |report: &Report| report.counters.get("requests while hot") as f64;
    of(report) / of(calm)
}

#[test]
fn f_127_a_hot_partition_delays_its_own_job_and_no_other() {
    for seed in 0..3 {
        let fleet = fleet(seed);
        let job = fleet.jobs[1].name.clone();
        let calm = played(hot(&fleet, Hot::Job(job.clone()), 0), None);
        for rate in [900, 1_000] {
            let report = played(hot(&fleet, Hot::Job(job.clone()), rate), None);
            let factor = requests(&report, &calm);
            assert!(
                factor < 1.3,
                "seed {seed}, {rate}: {factor} times as many requests"
            );
            assert!(report.counters.get("store hot") > 50, "seed {seed}");
            for (name, longest) in longest_waits(&report) {
                let most = match name == job {
                    true => LASTS + secs(5),
                    false => IN_TIME,
                };
                assert!(
                    longest <= most,
                    "seed {seed}, {rate}: {name} waited for {longest:?}"
                );
            }
        }
    }
}

#[test]
fn f_127_messages_that_cannot_be_sent_again_delay_no_other_job() {
    for seed in 0..2 {
        let mut fleet = fleet(seed);
        let job = fleet.jobs[1].name.clone();
        // Its name stays blocked for a while, so that a sender cannot make it again.
        let blow = Blow::LoseQueue(job.clone(), secs(8));
        fleet.blows.push((secs(2), blow));
        // Its tasks cannot be read just when their messages are missed.
        let report = played(hot(&fleet, Hot::Method(StoreMethod::Get), 1_000), None);
        assert!(report.counters.get("store hot") > 5, "seed {seed}");
        for (name, longest) in longest_waits(&report) {
            let most = if name == job {
                LASTS + secs(25)
            } else {
                IN_TIME
            };
            assert!(
                longest <= most,
                "seed {seed}: {name} waited for {longest:?}"
            );
        }
    }
}

/// How much more may be asked while a method throttles.
const STORM: f64 = 1.6;

#[test]
fn a_method_that_throttles_causes_no_storm_and_recovers_by_itself() {
    let methods = [
        StoreMethod::Apply,
        StoreMethod::Create,
        StoreMethod::Due,
        StoreMethod::Get,
        StoreMethod::PutWorkers,
    ];
    for seed in 0..2 {
        let fleet = fleet(seed);
        let calm = played(hot(&fleet, Hot::Method(StoreMethod::Apply), 0), None);
        for method in methods {
            let report = played(hot(&fleet, Hot::Method(method), 950), None);
            let factor = requests(&report, &calm);
            assert!(
                factor < STORM,
                "seed {seed}, {method:?}: {factor} times as many requests"
            );
            for (name, longest) in longest_waits(&report) {
                let most = LASTS + secs(8);
                assert!(
                    longest <= most,
                    "seed {seed}, {method:?}: {name} waited for {longest:?}"
                );
            }
        }
    }
}

#[test]
fn callers_that_try_again_at_once_are_caught() {
    let fleet = fleet(0);
    let apply = Hot::Method(StoreMethod::Apply);
    let calm = played(hot(&fleet, apply.clone(), 0), None);
    let report = played(hot(&fleet, apply, 950), Some(Bad::RetryStorm));
    let factor = requests(&report, &calm);
    assert!(factor > STORM, "{factor} times as many requests");
}

#[test]
fn f_127_a_queue_that_is_deleted_delays_its_own_job_by_one_enqueue_timeout_and_no_other() {
    for seed in 0..3 {
        let fleet = fleet(seed);
        let job = fleet.jobs[1].name.clone();
        let timeout = fleet.jobs[1].policy.enqueue_timeout;
        for blocked_for in [secs(0), secs(30)] {
            let mut lost = fleet.clone();
            let blow = Blow::LoseQueue(job.clone(), blocked_for);
            lost.blows.push((BEGINS, blow));
            let report = played(lost, None);
            for (name, longest) in longest_waits(&report) {
                let most = match name == job {
                    true => timeout.max(blocked_for) + secs(8),
                    false => IN_TIME,
                };
                assert!(
                    longest <= most,
                    "seed {seed}, {blocked_for:?}: {name} waited for {longest:?}"
                );
            }
        }
    }
}

#[test]
fn f_129_while_one_host_after_the_other_dies_everything_is_accepted_and_runs() {
    for seed in 0..3 {
        let mut fleet = fleet(seed);
        let hosts: usize = fleet.hosts.iter().sum();
        for (host, at) in (0..hosts).zip([3, 10, 17, 24, 31, 38, 45, 52]) {
            fleet
                .blows
                .push((secs(at), Blow::Crash(host, Some(secs(5)))));
        }
        let submits = fleet.submits.len();
        let report = played(fleet, None);
        let acked = |entry: &Entry| matches!(entry.what, What::SubmitAcked { .. });
        let acked = report
            .history
            .entries()
            .iter()
            .filter(|entry| acked(entry))
            .count();
        assert!(acked >= submits, "seed {seed}: {acked} of {submits}");
        assert_eq!(report.counters.get("host crashed"), 8);
        for (name, longest) in longest_waits(&report) {
            // A message that a controller took with it comes back by its visibility timeout, or by that of its task.
            assert!(
                longest <= secs(25),
                "seed {seed}: {name} waited for {longest:?}"
            );
        }
    }
}
