//! Whether the settings hold together.

use dueline_backends::{BackendError, doctor::Finding};
use dueline_runtime::config::Loaded;

use crate::commands::process;

const AREA: &str = "settings";

/// What the servers would refuse at their start, and what they would warn of.
pub(super) fn check(loaded: &Loaded) -> Vec<Finding> {
    let mut findings: Vec<Finding> = match loaded.settings.check() {
        Ok(()) => vec![Finding::ok(
            AREA,
            "all",
            "in their ranges and in line with each other",
        )],
        Err(problems) => problems
            .into_iter()
            .map(|problem| {
                Finding::defect(
                    AREA,
                    problem.settings.join(", "),
                    problem.what,
                    problem.mend,
                )
            })
            .collect(),
    };
    findings.extend(loaded.notes.iter().map(|note| {
        let mend = "remove it, or give it the name of a setting; --print-config lists them";
        Finding::warning(AREA, "environment and file", note, mend)
    }));
    findings
}

/// The parsed address, or a finding that says what is wrong with it.
pub(super) fn address<T>(
    name: &str,
    parsed: Result<T, BackendError>,
    findings: &mut Vec<Finding>,
) -> Option<T> {
    match parsed {
        Ok(address) => Some(address),
        Err(error) => {
            let mend = format!("write the URI as config.default.toml shows for '{name}'");
            findings.push(Finding::defect(AREA, name, process::chain(&error), mend));
            None
        }
    }
}

/// Whether store and queue go together.
pub(super) fn pair(store_is_shared: bool, queue_is_shared: bool) -> Option<Finding> {
    (store_is_shared && !queue_is_shared).then(|| {
        Finding::warning(
            AREA,
            "store, queue",
            "several processes may share the store, but the queue lives inside each one: a message that one sends reaches \
             no controller of another",
            "with split roles or several servers name a shared queue, --queue sqs://PREFIX; one 'dueline serve' with all \
             services needs none",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dueline_backends::{StoreAddress, doctor::State};
    use dueline_runtime::{Settings, config::Loaded};

    use super::*;

    #[test]
    fn g_18_settings_that_contradict_each_other_are_named_with_their_mend() {
        let mut settings = Settings::default();
        settings.worker.heartbeat_interval_ms = 5_000;
        let loaded = Loaded {
            settings,
            origins: BTreeMap::new(),
            notes: vec!["DUELINE_NOTHING sets nothing".into()],
        };
        let findings = check(&loaded);
        assert_eq!(findings[0].state, State::Defect);
        assert!(
            findings[0]
                .name
                .contains("worker.heartbeat_interval_ms = 5000")
        );
        let mend = findings[0].mend.as_deref().unwrap_or_default();
        assert!(
            mend.contains("lower worker.heartbeat_interval_ms"),
            "{mend}"
        );
        assert_eq!(findings[1].state, State::Warning);
        let fine = Loaded {
            settings: Settings::default(),
            origins: BTreeMap::new(),
            notes: Vec::new(),
        };
        assert_eq!(check(&fine)[0].state, State::Ok);
    }

    #[test]
    fn g_18_a_queue_inside_the_process_beside_a_shared_store_is_a_warning() {
        assert_eq!(pair(true, false).map(|f| f.state), Some(State::Warning));
        assert_eq!((pair(true, true), pair(false, false)), (None, None));
    }

    #[test]
    fn g_18_an_address_that_is_none_is_a_defect_and_no_end() {
        let mut findings = Vec::new();
        let address = address("store", StoreAddress::parse("mongo:x"), &mut findings);
        assert!(address.is_none());
        assert_eq!(findings[0].state, State::Defect);
        assert!(findings[0].detail.contains("mongo"), "{findings:?}");
    }
}
