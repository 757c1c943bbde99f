//! One disruption at a time in an otherwise healthy fleet: which jobs does it delay, and how many requests does it cost?

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::JobName;
use dueline_testkit::{HistoryEntry, HistoryEvent, HotSpot, StoreMethod};
use dueline_tests_simulation::{Disruption, PlantedBug, Scenario, WorldReport, play, start_delays};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// When the disruption begins, how long it lasts, and until when tasks are submitted.
const BEGINS: Duration = secs(10);
const LASTS: Duration = secs(40);
const SUBMITS_END: Duration = secs(60);
/// Start delay of jobs without a disruption: the poll period, and two seconds for everything else.
const DELAY_MAX: Duration = secs(3);

fn fleet(seed: u64) -> Scenario {
    Scenario::calm_fleet(seed, 240, SUBMITS_END)
}

fn play_without_failures(scenario: Scenario, bug: Option<PlantedBug>) -> WorldReport {
    let seed = scenario.seed;
    let report = play(scenario, bug);
    let failures = &report.failures;
    assert!(failures.is_empty(), "seed {seed}:\n{}", failures.join("\n"));
    report
}

/// The longest start delay of each job.
fn longest_delays(report: &WorldReport) -> BTreeMap<JobName, Duration> {
    let mut longest: BTreeMap<JobName, Duration> = BTreeMap::new();
    for start in start_delays(&report.history) {
        let delay = start
            .delay
            .unwrap_or_else(|| panic!("never ran: {start:?}"));
        let longest = longest.entry(start.job).or_default();
        *longest = delay.max(*longest);
    }
    longest
}

fn with_hot(scenario: &Scenario, hot: HotSpot, per_mille: u32) -> Scenario {
    let mut scenario = scenario.clone();
    scenario
        .disruptions
        .push((BEGINS, Disruption::HotSpot(hot, per_mille, LASTS)));
    scenario
}

/// Requests to the store while it was hot, as a multiple of those in the calm world.
fn request_factor(report: &WorldReport, calm: &WorldReport) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let of = |report: &WorldReport| report.counters.get("requests while hot") as f64;
    of(report) / of(calm)
}

#[test]
fn f_127_a_hot_partition_delays_its_own_job_and_no_other() {
    for seed in 0..3 {
        let fleet = fleet(seed);
        let job = fleet.jobs[1].name.clone();
        let calm = play_without_failures(with_hot(&fleet, HotSpot::Job(job.clone()), 0), None);
        for rate in [900, 1_000] {
            let report =
                play_without_failures(with_hot(&fleet, HotSpot::Job(job.clone()), rate), None);
            let factor = request_factor(&report, &calm);
            assert!(
                factor < 1.3,
                "seed {seed}, {rate}: {factor} times as many requests"
            );
            assert!(report.counters.get("store hot") > 50, "seed {seed}");
            for (name, longest) in longest_delays(&report) {
                let most = match name == job {
                    true => LASTS + secs(5),
                    false => DELAY_MAX,
                };
                assert!(
                    longest <= most,
                    "seed {seed}, {rate}: {name} was delayed by {longest:?}"
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
        // The name stays blocked for a while, so that a sender cannot create the queue again.
        let disruption = Disruption::DeleteAndBlockQueue(job.clone(), secs(8));
        fleet.disruptions.push((secs(2), disruption));
        // Tasks cannot be read while the watchdog finds that their messages are lost.
        let report = play_without_failures(
            with_hot(&fleet, HotSpot::Method(StoreMethod::Get), 1_000),
            None,
        );
        assert!(report.counters.get("store hot") > 5, "seed {seed}");
        for (name, longest) in longest_delays(&report) {
            let most = if name == job {
                LASTS + secs(25)
            } else {
                DELAY_MAX
            };
            assert!(
                longest <= most,
                "seed {seed}: {name} was delayed by {longest:?}"
            );
        }
    }
}

/// Largest factor of requests while a method is throttled.
const REQUEST_FACTOR_MAX: f64 = 1.6;

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
        let calm = play_without_failures(
            with_hot(&fleet, HotSpot::Method(StoreMethod::Apply), 0),
            None,
        );
        for method in methods {
            let report =
                play_without_failures(with_hot(&fleet, HotSpot::Method(method), 950), None);
            let factor = request_factor(&report, &calm);
            assert!(
                factor < REQUEST_FACTOR_MAX,
                "seed {seed}, {method:?}: {factor} times as many requests"
            );
            for (name, longest) in longest_delays(&report) {
                let most = LASTS + secs(8);
                assert!(
                    longest <= most,
                    "seed {seed}, {method:?}: {name} was delayed by {longest:?}"
                );
            }
        }
    }
}

#[test]
fn callers_that_retry_at_once_are_caught() {
    let fleet = fleet(0);
    let apply = HotSpot::Method(StoreMethod::Apply);
    let calm = play_without_failures(with_hot(&fleet, apply.clone(), 0), None);
    let report = play_without_failures(with_hot(&fleet, apply, 950), Some(PlantedBug::RetryStorm));
    let factor = request_factor(&report, &calm);
    assert!(
        factor > REQUEST_FACTOR_MAX,
        "{factor} times as many requests"
    );
}

#[test]
fn f_127_a_queue_that_is_deleted_delays_its_own_job_by_one_enqueue_timeout_and_no_other() {
    for seed in 0..3 {
        let fleet = fleet(seed);
        let job = fleet.jobs[1].name.clone();
        let timeout = fleet.jobs[1].policy.enqueue_timeout;
        for blocked_for in [secs(0), secs(30)] {
            let mut lost = fleet.clone();
            let disruption = Disruption::DeleteAndBlockQueue(job.clone(), blocked_for);
            lost.disruptions.push((BEGINS, disruption));
            let report = play_without_failures(lost, None);
            for (name, longest) in longest_delays(&report) {
                let most = match name == job {
                    true => timeout.max(blocked_for) + secs(8),
                    false => DELAY_MAX,
                };
                assert!(
                    longest <= most,
                    "seed {seed}, {blocked_for:?}: {name} was delayed by {longest:?}"
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
                .disruptions
                .push((secs(at), Disruption::Crash(host, Some(secs(5)))));
        }
        let submits = fleet.submits.len();
        let report = play_without_failures(fleet, None);
        let acked = |entry: &HistoryEntry| matches!(entry.event, HistoryEvent::SubmitAcked { .. });
        let acked = report
            .history
            .entries()
            .iter()
            .filter(|entry| acked(entry))
            .count();
        assert!(acked >= submits, "seed {seed}: {acked} of {submits}");
        assert_eq!(report.counters.get("host crashed"), 8);
        for (name, longest) in longest_delays(&report) {
            // A message that a dead controller had received is delivered again after its visibility timeout, or sent
            // again after its task's enqueue timeout.
            assert!(
                longest <= secs(25),
                "seed {seed}: {name} was delayed by {longest:?}"
            );
        }
    }
}
