//! Checks by the worker records in the store which processes are running.

use std::time::Duration;

use dueline_backends::doctor::Finding;
use dueline_domain::Timestamp;
use dueline_settings::Settings;

use super::facts::{StoreFacts, WorkerFacts};
use crate::units::span;

pub(super) const AREA: &str = "processes";
/// How long a process may be silent. A consumer renews its record every three seconds.
const SILENT_MAX: Duration = Duration::from_secs(15);
/// How many heartbeat intervals a worker may be silent. Its heartbeat is stored every second interval, so this is three
/// missing writes.
const HEARTBEATS_SILENT_MAX: u32 = 6;

/// Which processes own the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreOwnership {
    /// All processes of the deployment share the store.
    Shared,
    /// One server owns the file and runs the consumer.
    OneServer,
    /// The store is a file that no server has open, or that does not exist.
    Unowned,
}

pub(super) fn check(
    settings: &Settings,
    facts: Option<&StoreFacts>,
    ownership: StoreOwnership,
    now: Timestamp,
) -> Vec<Finding> {
    if ownership == StoreOwnership::Unowned {
        let detail = "no server owns the file: nothing finds due tasks, and nothing runs them";
        let finding = Finding::warning(AREA, "server", detail, "start 'dueline serve'");
        return vec![finding];
    }
    let workers = match facts.map(|facts| &facts.workers) {
        Some(Ok(workers)) => workers,
        Some(Err(why)) => {
            let detail = format!("the worker records cannot be read: {why}");
            return vec![Finding::unknown(AREA, "all", detail)];
        }
        None => {
            let detail = "neither a store nor a server is available to read worker records from";
            let finding = Finding::unknown(AREA, "all", detail);
            return vec![finding.fixed_by("name a server with --server")];
        }
    };
    let of_kind = |kind: &str| {
        workers
            .iter()
            .filter(|worker| worker.kind == kind)
            .collect()
    };
    let mut findings = Vec::new();
    if ownership == StoreOwnership::Shared {
        let consumers: Vec<_> = of_kind("consumer");
        let if_none = (
            "nothing finds due tasks",
            "start one: 'dueline-consumer' or 'dueline serve'",
        );
        findings.push(check_active(
            "consumers",
            &consumers,
            SILENT_MAX,
            if_none,
            now,
        ));
    } else {
        findings.push(Finding::ok(
            AREA,
            "consumers",
            "runs inside the server that owns the file",
        ));
    }
    let silent_max = settings
        .worker
        .heartbeat_interval()
        .saturating_mul(HEARTBEATS_SILENT_MAX);
    let silent_max = silent_max.max(SILENT_MAX);
    let if_none = (
        "nothing runs tasks",
        "start one: 'dueline-executor', 'dueline worker run' or 'dueline serve'",
    );
    findings.push(check_active(
        "executors",
        &of_kind("executor"),
        silent_max,
        if_none,
        now,
    ));
    findings
}

/// Checks that at least one process of a kind was active within `silent_max`.
fn check_active(
    name: &str,
    records: &[&WorkerFacts],
    silent_max: Duration,
    (consequence, fix): (&str, &str),
    now: Timestamp,
) -> Finding {
    let silence = |record: &&WorkerFacts| now.since(record.seen_at);
    let active = records
        .iter()
        .filter(|record| silence(record) <= silent_max)
        .count();
    let silent = records.len() - active;
    let within = span(silent_max);
    if active > 0 {
        let rest = if silent > 0 {
            format!(", {silent} silent for longer")
        } else {
            String::new()
        };
        return Finding::ok(AREA, name, format!("{active} active within {within}{rest}"));
    }
    let last = records.iter().map(silence).min();
    let last = last.map_or("none is registered".to_owned(), |last| {
        format!("the last one was active {} ago", span(last))
    });
    let detail = format!("none active within {within}, so {consequence}; {last}");
    Finding::warning(AREA, name, detail, fix)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dueline_backends::doctor::State;

    use super::*;

    const NOW: i64 = 1_000_000;

    fn check_workers(ownership: StoreOwnership, workers: &[(&str, i64)]) -> Vec<(State, String)> {
        let workers = workers.iter().map(|(kind, ago_s)| WorkerFacts {
            id: format!("{kind}@{ago_s}"),
            kind: (*kind).to_owned(),
            seen_at: Timestamp::clamped(NOW - ago_s * 1_000),
        });
        let facts = StoreFacts {
            jobs: Ok(Vec::new()),
            workers: Ok(workers.collect()),
            oldest: Ok(BTreeMap::new()),
        };
        let now = Timestamp::clamped(NOW);
        let findings = check(&Settings::default(), Some(&facts), ownership, now);
        findings.into_iter().map(|f| (f.state, f.detail)).collect()
    }

    #[test]
    fn g_18_a_fleet_without_consumers_or_executors_is_a_warning() {
        let states = |workers: &[(&str, i64)]| {
            let findings = check_workers(StoreOwnership::Shared, workers);
            findings
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
        let silent = [("consumer", 60), ("consumer", 90)];
        let (_, detail) = &check_workers(StoreOwnership::Shared, &silent)[0];
        assert!(detail.contains("nothing finds due tasks"), "{detail}");
        assert!(detail.contains("60 s ago"), "{detail}");
    }

    #[test]
    fn g_18_a_file_that_no_server_owns_is_a_warning() {
        let findings = check_workers(StoreOwnership::Unowned, &[("executor", 1)]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].0, State::Warning);
        let findings = check_workers(StoreOwnership::OneServer, &[("executor", 1)]);
        assert!(
            findings.iter().all(|(state, _)| *state == State::Ok),
            "{findings:?}"
        );
    }
}
