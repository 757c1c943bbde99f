//! The test of the tests: systems that are wrong on purpose are caught, each by the promise it breaks.

use dueline_tests_simulation::{Bad, Mode, first_broken};

/// Within so many worlds each fault must show.
const SEEDS: u64 = 60;

fn caught(bad: Bad, by: &str) {
    caught_in(Mode::Safety, bad, by);
}

fn caught_in(mode: Mode, bad: Bad, by: &str) {
    let seed = first_broken(0..SEEDS, mode, bad, by);
    assert!(
        seed.is_some(),
        "{bad:?} was not caught by '{by}' in {SEEDS} worlds"
    );
}

#[test]
fn a_store_that_ignores_tokens_is_caught() {
    // Where watchdogs are far ahead, many a worker that lives is taken for dead.
    caught_in(
        Mode::WildClocks,
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

#[test]
fn a_consumer_that_never_looks_behind_its_cursor_is_caught() {
    caught_in(Mode::Fleet, Bad::ForwardCursor, "every task ends");
}

#[test]
fn a_consumer_that_takes_the_index_for_the_truth_is_caught() {
    caught_in(
        Mode::Fleet,
        Bad::TrustsIndex,
        "nothing is taken back before its time",
    );
}

#[test]
fn a_consumer_that_waits_for_the_dead_is_caught() {
    caught_in(Mode::Fleet, Bad::GhostMembers, "every task ends");
}

#[test]
fn a_client_that_takes_part_of_a_batch_for_all_of_it_is_caught() {
    caught_in(Mode::Fleet, Bad::PartIsAll, "durable");
}

#[test]
fn a_consumer_that_takes_an_empty_page_for_the_end_is_caught() {
    caught_in(Mode::Fleet, Bad::EmptyIsEnd, "every task ends");
}
