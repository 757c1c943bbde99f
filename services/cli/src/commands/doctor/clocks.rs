//! Checks the clocks of services, servers and workers against this machine's. Clocks that differ break no guarantee,
//! but tasks start late, and reports show workers as lost too early or too late.

use std::time::Duration;

use dueline_backends::doctor::{ClockReading, Finding};
use dueline_domain::Timestamp;
use dueline_settings::Settings;

use super::facts::StoreFacts;
use crate::units::span;

const AREA: &str = "clocks";
/// The greatest difference without a finding.
const DIFFERENCE_MS_MAX: i64 = 2_000;
const FIX: &str =
    "synchronize the clocks of all hosts, including this one (chrony, systemd-timesyncd)";

/// The findings about all clocks. A difference above half of the shortest heartbeat timeout is a defect.
pub(super) fn check(
    settings: &Settings,
    readings: &[ClockReading],
    facts: Option<&StoreFacts>,
    now: Timestamp,
) -> Vec<Finding> {
    let jobs = facts.and_then(|facts| facts.jobs.as_ref().ok());
    let shortest = jobs.and_then(|jobs| jobs.iter().map(|job| job.heartbeat_timeout).min());
    let limit = shortest.unwrap_or(settings.policy().heartbeat_timeout) / 2;
    let mut findings: Vec<_> = readings
        .iter()
        .map(|reading| check_reading(reading, limit))
        .collect();
    findings.extend(workers_ahead(facts, limit, now));
    if findings.is_empty() {
        let detail = "no service and no server reported its time";
        findings.push(Finding::unknown(AREA, "all", detail));
    }
    findings
}

fn check_reading(reading: &ClockReading, limit: Duration) -> Finding {
    let difference_ms = reading.at_least_ms();
    if difference_ms <= DIFFERENCE_MS_MAX {
        let within = span(Duration::from_millis(reading.uncertain_ms.unsigned_abs()));
        let detail = format!("agrees with this machine's clock (measured within {within})");
        return Finding::ok(AREA, &reading.source, detail);
    }
    let direction = if reading.ahead_ms > 0 {
        "ahead of"
    } else {
        "behind"
    };
    differs(&reading.source, difference_ms, direction, limit)
}

fn differs(name: &str, difference_ms: i64, direction: &str, limit: Duration) -> Finding {
    let difference = Duration::from_millis(difference_ms.unsigned_abs());
    let detail = format!(
        "at least {} {direction} this machine's clock: tasks may start late by that much; correctness does not depend \
         on clocks",
        span(difference)
    );
    if difference > limit {
        let detail = format!(
            "{detail}; more than half a heartbeat timeout ({})",
            span(limit)
        );
        Finding::defect(AREA, name, detail, FIX)
    } else {
        Finding::warning(AREA, name, detail, FIX)
    }
}

/// A heartbeat from the future comes from a worker whose clock is ahead.
fn workers_ahead(facts: Option<&StoreFacts>, limit: Duration, now: Timestamp) -> Vec<Finding> {
    let workers = facts.and_then(|facts| facts.workers.as_ref().ok());
    let ahead = workers.into_iter().flatten().filter_map(|worker| {
        let ahead_ms = worker.seen_at.millis() - now.millis();
        (ahead_ms > DIFFERENCE_MS_MAX).then(|| differs(&worker.id, ahead_ms, "ahead of", limit))
    });
    ahead.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dueline_backends::doctor::State;

    use super::{super::facts::WorkerFacts, *};

    fn state(ahead_ms: i64) -> State {
        let reading = ClockReading {
            source: "DynamoDB".into(),
            ahead_ms,
            uncertain_ms: 500,
        };
        let findings = check(&Settings::default(), &[reading], None, Timestamp::EPOCH);
        assert_eq!(findings.len(), 1);
        findings[0].state
    }

    #[test]
    fn g_18_a_clock_is_a_warning_from_two_seconds_and_a_defect_from_half_a_heartbeat_timeout() {
        assert_eq!(state(2_500), State::Ok);
        assert_eq!(state(-2_501), State::Warning);
        assert_eq!(state(4_500), State::Warning);
        assert_eq!(state(4_501), State::Defect);
        assert_eq!(state(-3_600_000), State::Defect);
    }

    #[test]
    fn g_18_a_worker_from_the_future_has_a_clock_that_is_ahead() {
        let worker = |seen_at_ms| WorkerFacts {
            id: format!("w@{seen_at_ms}"),
            kind: "executor".into(),
            seen_at: Timestamp::clamped(seen_at_ms),
        };
        let facts = StoreFacts {
            jobs: Ok(Vec::new()),
            workers: Ok(vec![worker(900_000), worker(1_001_000), worker(1_060_000)]),
            oldest: Ok(BTreeMap::new()),
        };
        let now = Timestamp::clamped(1_000_000);
        let findings = check(&Settings::default(), &[], Some(&facts), now);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            (findings[0].state, findings[0].name.as_str()),
            (State::Defect, "w@1060000")
        );
    }
}
