//! Checks the settings.

use dueline_backends::{BackendError, doctor::Finding, error_chain};
use dueline_settings::LoadedSettings;

const AREA: &str = "settings";

/// The settings that a server would refuse or warn of when it starts.
pub(super) fn check(loaded: &LoadedSettings) -> Vec<Finding> {
    let mut findings: Vec<Finding> = match loaded.settings.check() {
        Ok(()) => vec![Finding::ok(
            AREA,
            "all",
            "all values are valid and consistent with each other",
        )],
        Err(problems) => problems
            .into_iter()
            .map(|problem| {
                Finding::defect(AREA, problem.settings.join(", "), problem.what, problem.fix)
            })
            .collect(),
    };
    findings.extend(loaded.notes.iter().map(|note| {
        let fix = "remove it, or use the name of a setting; --print-config lists all settings";
        Finding::warning(AREA, "environment and file", note, fix)
    }));
    findings
}

/// The parsed address. If it is malformed, a defect is added to `findings`.
pub(super) fn address<T>(
    name: &str,
    parsed: Result<T, BackendError>,
    findings: &mut Vec<Finding>,
) -> Option<T> {
    match parsed {
        Ok(address) => Some(address),
        Err(error) => {
            let fix = format!("write the URI as config.default.toml shows for '{name}'");
            findings.push(Finding::defect(AREA, name, error_chain(&error), fix));
            None
        }
    }
}

/// A warning if the store is shared and the queue is not.
pub(super) fn check_shared(store_is_shared: bool, queue_is_shared: bool) -> Option<Finding> {
    (store_is_shared && !queue_is_shared).then(|| {
        Finding::warning(
            AREA,
            "store, queue",
            "the store is shared by several processes, but each process has its own local queue: a message sent by one \
             process does not reach the controllers of another",
            "set a shared queue with --queue sqs://PREFIX, unless one 'dueline serve' runs all services",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dueline_backends::{StoreAddress, doctor::State};
    use dueline_settings::{LoadedSettings, Settings};

    use super::*;

    #[test]
    fn g_18_settings_that_contradict_each_other_are_named_with_their_fix() {
        let mut settings = Settings::default();
        settings.worker.heartbeat_interval_ms = 5_000;
        let loaded = LoadedSettings {
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
        let fix = findings[0].fix.as_deref().unwrap_or_default();
        assert!(fix.contains("lower worker.heartbeat_interval_ms"), "{fix}");
        assert_eq!(findings[1].state, State::Warning);
        let valid = LoadedSettings {
            settings: Settings::default(),
            origins: BTreeMap::new(),
            notes: Vec::new(),
        };
        assert_eq!(check(&valid)[0].state, State::Ok);
    }

    #[test]
    fn g_18_a_queue_inside_the_process_beside_a_shared_store_is_a_warning() {
        let state = check_shared(true, false).map(|finding| finding.state);
        assert_eq!(state, Some(State::Warning));
        assert_eq!(check_shared(true, true), None);
        assert_eq!(check_shared(false, false), None);
    }

    #[test]
    fn g_18_a_malformed_address_is_a_defect_and_does_not_end_the_command() {
        let mut findings = Vec::new();
        let address = address("store", StoreAddress::parse("mongo:x"), &mut findings);
        assert!(address.is_none());
        assert_eq!(findings[0].state, State::Defect);
        assert!(findings[0].detail.contains("mongo"), "{findings:?}");
    }
}
