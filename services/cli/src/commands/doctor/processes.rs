//! Who is there, by the records in the store.

use std::time::Duration;

use dueline_backends::doctor::Finding;
use dueline_domain::Timestamp;
use dueline_runtime::config::Settings;

use super::facts::{Facts, WorkerFacts};
use crate::units::span;

pub(super) const AREA: &str = "processes";
/// A consumer says every three seconds that it is there.
const SILENT_MAX: Duration = Duration::from_secs(15);
/// A worker's sign of life is stored once in two heartbeat intervals; three of these in a row are too many.
const HEARTBEATS_SILENT_MAX: u32 = 6;

/// Who owns the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Everybody who works on it.
    Shared,
    /// One server, which finds due tasks by itself.
    OfAServer,
    /// Nobody: it is a file, and no server has it open, or there is none.
    OfNobody,
}

pub(super) fn judge(
    settings: &Settings,
    facts: Option<&Facts>,
    home: Home,
    now: Timestamp,
) -> Vec<Finding> {
    if home == Home::OfNobody {
        let detail = "no server owns the file: nothing finds due tasks, and nothing runs them";
        let finding = Finding::warning(AREA, "server", detail, "start 'dueline serve'");
        return vec![finding];
    }
    let workers = match facts.map(|facts| &facts.workers) {
        Some(Ok(workers)) => workers,
        Some(Err(why)) => {
            let detail = format!("their records cannot be read: {why}");
            return vec![Finding::unknown(AREA, "all", detail)];
        }
        None => {
            let detail = "there is no store and no server to read their records from";
            let finding = Finding::unknown(AREA, "all", detail);
            return vec![finding.mended_by("name a server by --server")];
        }
    };
    let of_kind = |kind: &str| {
        workers
            .iter()
            .filter(|worker| worker.kind == kind)
            .collect()
    };
    let mut findings = Vec::new();
    if home == Home::Shared {
        let consumers: Vec<_> = of_kind("consumer");
        let nothing = (
            "nothing finds due tasks",
            "start one: 'dueline-consumer' or 'dueline serve'",
        );
        findings.push(present("consumers", &consumers, SILENT_MAX, nothing, now));
    } else {
        findings.push(Finding::ok(
            AREA,
            "consumers",
            "inside the server that owns the file",
        ));
    }
    let silent_max = settings
        .worker
        .heartbeat_interval()
        .saturating_mul(HEARTBEATS_SILENT_MAX);
    let silent_max = silent_max.max(SILENT_MAX);
    let nothing = (
        "nothing runs tasks",
        "start one: 'dueline-executor', 'dueline worker run' or 'dueline serve'",
    );
    findings.push(present(
        "executors",
        &of_kind("executor"),
        silent_max,
        nothing,
        now,
    ));
    findings
}

/// Whether anybody of a kind was heard of lately.
fn present(
    name: &str,
    records: &[&WorkerFacts],
    silent_max: Duration,
    (consequence, mend): (&str, &str),
    now: Timestamp,
) -> Finding {
    let silence = |record: &&WorkerFacts| now.since(record.seen_at);
    let alive = records
        .iter()
        .filter(|record| silence(record) <= silent_max)
        .count();
    let silent = records.len() - alive;
    let within = span(silent_max);
    if alive > 0 {
        let rest = if silent > 0 {
            format!(", {silent} silent for longer")
        } else {
            String::new()
        };
        return Finding::ok(
            AREA,
            name,
            format!("{alive} heard of within {within}{rest}"),
        );
    }
    let last = records.iter().map(silence).min();
    let last = last.map_or("none is known".to_owned(), |last| {
        format!("the last was heard of {} ago", span(last))
    });
    let detail = format!("none within {within}, so {consequence}; {last}");
    Finding::warning(AREA, name, detail, mend)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dueline_backends::doctor::State;

    use super::*;

    const NOW: i64 = 1_000_000;

    fn of(home: Home, workers: &[(&str, i64)]) -> Vec<(State, String)> {
        let workers = workers.iter().map(|(kind, ago_s)| WorkerFacts {
            id: format!("{kind}@{ago_s}"),
            kind: (*kind).to_owned(),
            seen_at: Timestamp::clamped(NOW - ago_s * 1_000),
        });
        let facts = Facts {
            jobs: Ok(Vec::new()),
            workers: Ok(workers.collect()),
            oldest: Ok(BTreeMap::new()),
        };
        let now = Timestamp::clamped(NOW);
        let findings = judge(&Settings::default(), Some(&facts), home, now);
        findings.into_iter().map(|f| (f.state, f.detail)).collect()
    }

    #[test]
    fn g_18_a_fleet_without_consumers_or_executors_is_warned_of() {
        let states = |workers: &[(&str, i64)]| {
            let found = of(Home::Shared, workers);
            found
                .into_iter()
                .map(|(state, _)| state)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            states(&[("consumer", 3), ("executor", 4)]),
            [State::Ok, State::Ok]
        );
        assert_eq!(
            states(&[("consumer", 16), ("executor", 4)]),
            [State::Warning, State::Ok]
        );
        assert_eq!(states(&[("consumer", 3)]), [State::Ok, State::Warning]);
        let (_, detail) = &of(Home::Shared, &[("consumer", 60), ("consumer", 90)])[0];
        assert!(detail.contains("nothing finds due tasks"), "{detail}");
        assert!(detail.contains("60 s ago"), "{detail}");
    }

    #[test]
    fn g_18_a_file_that_nobody_owns_is_warned_of() {
        let found = of(Home::OfNobody, &[("executor", 1)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, State::Warning);
        let found = of(Home::OfAServer, &[("executor", 1)]);
        assert!(
            found.iter().all(|(state, _)| *state == State::Ok),
            "{found:?}"
        );
    }
}
