//! The test of the tests: systems that are wrong on purpose are caught, each by the promise it breaks.

use dueline_tests_simulation::{Bad, Mode, first_failure};

/// Within so many worlds each fault must show.
const SEEDS: u64 = 60;

fn caught(bad: Bad, by: &str) {
    let Some((seed, failures)) = first_failure(0..SEEDS, Mode::Safety, bad) else {
        panic!("{bad:?} was not caught in {SEEDS} worlds");
    };
    let named = failures.iter().any(|failure| failure.starts_with(by));
    assert!(
        named,
        "seed {seed}: {bad:?} was caught, but not by '{by}': {failures:#?}"
    );
}

#[test]
fn a_store_that_ignores_tokens_is_caught() {
    caught(
        Bad::NoTokenCheck,
        "success means that this very attempt ran well",
    );
}

#[test]
fn a_submit_that_is_acknowledged_before_it_is_stored_is_caught() {
    caught(Bad::AckBeforeCommit, "durable");
}

#[test]
fn a_message_that_is_deleted_before_its_claim_is_caught() {
    caught(
        Bad::DeleteBeforeClaim,
        "a message is deleted only after the claim",
    );
}

#[test]
fn a_watchdog_that_does_not_compare_is_caught() {
    caught(
        Bad::WatchdogWithoutCompare,
        "nothing is taken back before its time",
    );
}

#[test]
fn a_poll_by_cursor_is_caught() {
    caught(Bad::CursorPoll, "every task ends");
}

#[test]
fn a_claim_that_two_workers_get_is_caught() {
    caught(Bad::SharedClaims, "one run per token");
}
