//! Clocks beside this machine's. Nothing goes wrong by them, but tasks begin too late, and workers are missed too early
//! or too late in what people read.

use std::time::Duration;

use dueline_backends::doctor::{ClockReading, Finding};
use dueline_domain::Timestamp;
use dueline_runtime::config::Settings;

use super::facts::Facts;
use crate::units::span;

const AREA: &str = "clocks";
/// More than this is worth a word.
const APART_MS_MAX: i64 = 2_000;
const MEND: &str =
    "let a time service set the clocks of all hosts (chrony, systemd-timesyncd), this one included";

/// Each clock that was read; `limit` is half of the shortest heartbeat timeout there is.
pub(super) fn judge(
    settings: &Settings,
    readings: &[ClockReading],
    facts: Option<&Facts>,
    now: Timestamp,
) -> Vec<Finding> {
    let jobs = facts.and_then(|facts| facts.jobs.as_ref().ok());
    let shortest = jobs.and_then(|jobs| jobs.iter().map(|job| job.heartbeat_timeout).min());
    let limit = shortest.unwrap_or(settings.policy().heartbeat_timeout) / 2;
    let mut findings: Vec<_> = readings
        .iter()
        .map(|reading| of_reading(reading, limit))
        .collect();
    findings.extend(workers_ahead(facts, limit, now));
    if findings.is_empty() {
        let detail = "no service and no server has told its time";
        findings.push(Finding::unknown(AREA, "all", detail));
    }
    findings
}

fn of_reading(reading: &ClockReading, limit: Duration) -> Finding {
    let apart_ms = reading.at_least_ms();
    if apart_ms <= APART_MS_MAX {
        let within = span(Duration::from_millis(reading.uncertain_ms.unsigned_abs()));
        let detail = format!("as far as can be told (within {within}) like this machine's");
        return Finding::ok(AREA, &reading.of, detail);
    }
    let way = if reading.ahead_ms > 0 {
        "ahead of"
    } else {
        "behind"
    };
    apart(&reading.of, apart_ms, way, limit)
}

fn apart(name: &str, apart_ms: i64, way: &str, limit: Duration) -> Finding {
    let apart = Duration::from_millis(apart_ms.unsigned_abs());
    let detail = format!(
        "at least {} {way} this machine's: tasks begin late by that much where clocks differ, never wrongly",
        span(apart)
    );
    if apart > limit {
        let detail = format!(
            "{detail}; more than half a heartbeat timeout ({})",
            span(limit)
        );
        Finding::defect(AREA, name, detail, MEND)
    } else {
        Finding::warning(AREA, name, detail, MEND)
    }
}

/// A sign of life from the future comes from a clock that is ahead.
fn workers_ahead(facts: Option<&Facts>, limit: Duration, now: Timestamp) -> Vec<Finding> {
    let workers = facts.and_then(|facts| facts.workers.as_ref().ok());
    let ahead = workers.into_iter().flatten().filter_map(|worker| {
        let ahead_ms = worker.seen_at.millis() - now.millis();
        (ahead_ms > APART_MS_MAX).then(|| apart(&worker.id, ahead_ms, "ahead of", limit))
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
            of: "DynamoDB".into(),
            ahead_ms,
            uncertain_ms: 500,
        };
        let found = judge(&Settings::default(), &[reading], None, Timestamp::EPOCH);
        assert_eq!(found.len(), 1);
        found[0].state
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
        let facts = Facts {
            jobs: Ok(Vec::new()),
            workers: Ok(vec![worker(900_000), worker(1_001_000), worker(1_060_000)]),
            oldest: Ok(BTreeMap::new()),
        };
        let now = Timestamp::clamped(1_000_000);
        let found = judge(&Settings::default(), &[], Some(&facts), now);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].state, found[0].name.as_str()),
            (State::Defect, "w@1060000")
        );
    }
}
