//! Tests of the checker: each planted bug is caught by the property that it violates.

use dueline_tests_simulation::{PlantedBug, WorldMode, first_violation};

/// Each bug must be caught within this many worlds.
const SEEDS: u64 = 60;

fn assert_caught(bug: PlantedBug, property: &str) {
    assert_caught_in(WorldMode::Safety, bug, property);
}

fn assert_caught_in(mode: WorldMode, bug: PlantedBug, property: &str) {
    let seed = first_violation(0..SEEDS, mode, bug, property);
    assert!(
        seed.is_some(),
        "{bug:?} was not caught by '{property}' in {SEEDS} worlds"
    );
}

#[test]
fn a_store_that_ignores_tokens_is_caught() {
    // A watchdog whose clock is far ahead reclaims tasks from workers that are alive.
    assert_caught_in(
        WorldMode::WildClocks,
        PlantedBug::NoTokenCheck,
        "a success needs a successful run with its token",
    );
}

#[test]
fn a_submit_that_is_acknowledged_before_it_is_stored_is_caught() {
    assert_caught(PlantedBug::AckBeforeCommit, "durable");
}

#[test]
fn a_message_that_is_deleted_before_its_claim_is_caught() {
    assert_caught(
        PlantedBug::DeleteBeforeClaim,
        "a message is deleted only after the claim",
    );
}

#[test]
fn a_watchdog_that_does_not_compare_is_caught() {
    assert_caught(
        PlantedBug::WatchdogWithoutCompare,
        "no trigger before its time",
    );
}

#[test]
fn a_poll_by_cursor_is_caught() {
    assert_caught(PlantedBug::CursorPoll, "every task ends");
}

#[test]
fn a_claim_that_two_workers_get_is_caught() {
    assert_caught(PlantedBug::SharedClaims, "one run per token");
}

#[test]
fn f_111_a_record_that_is_delivered_before_its_task_has_ended_is_caught() {
    assert_caught(
        PlantedBug::DeliverBeforeCommit,
        "a record is of a task that has ended",
    );
}

#[test]
fn f_111_a_delivery_that_is_settled_before_it_is_done_is_caught() {
    assert_caught(
        PlantedBug::SettleBeforeDelivery,
        "no effect is settled before it is done",
    );
}

#[test]
fn a_consumer_that_never_reads_behind_its_cursor_is_caught() {
    assert_caught_in(
        WorldMode::Fleet,
        PlantedBug::ForwardCursor,
        "every task ends",
    );
}

#[test]
fn a_consumer_that_trusts_the_index_is_caught() {
    assert_caught_in(
        WorldMode::Fleet,
        PlantedBug::TrustsIndex,
        "no trigger before its time",
    );
}

#[test]
fn a_consumer_that_never_drops_dead_members_is_caught() {
    assert_caught_in(
        WorldMode::Fleet,
        PlantedBug::GhostMembers,
        "every task ends",
    );
}

#[test]
fn a_client_that_treats_a_partial_batch_as_complete_is_caught() {
    assert_caught_in(
        WorldMode::Fleet,
        PlantedBug::PartialBatchIsComplete,
        "durable",
    );
}

#[test]
fn a_consumer_that_treats_an_empty_page_as_the_end_is_caught() {
    assert_caught_in(
        WorldMode::Fleet,
        PlantedBug::EmptyPageIsEnd,
        "every task ends",
    );
}

const ORDER: &str = "a task goes on only after what it waits for";

#[test]
fn f_095_a_counter_of_ends_instead_of_a_set_is_caught() {
    assert_caught_in(WorldMode::Families, PlantedBug::CounterInsteadOfSet, ORDER);
}

#[test]
fn f_095_a_release_before_the_end_is_stored_is_caught() {
    assert_caught_in(WorldMode::Families, PlantedBug::ReleaseBeforeCommit, ORDER);
}

#[test]
fn a_13_a_staged_task_that_goes_on_after_a_failed_run_is_caught() {
    assert_caught_in(
        WorldMode::Families,
        PlantedBug::StagedCommittedOnFailure,
        ORDER,
    );
}

#[test]
fn f_104_a_firing_whose_task_has_a_random_id_is_caught() {
    assert_caught_in(
        WorldMode::Schedules,
        PlantedBug::RandomFiringIds,
        "a firing has one task",
    );
}

#[test]
fn f_104_a_next_firing_that_counts_from_the_end_of_the_task_before_is_caught() {
    assert_caught_in(
        WorldMode::Schedules,
        PlantedBug::NextFiringFromEnd,
        "a firing is at a time of its rule",
    );
}

#[test]
fn g_05_a_consumer_that_begins_with_the_present_time_is_caught() {
    assert_caught_in(
        WorldMode::Schedules,
        PlantedBug::ResumesAtPresent,
        "no firing is lost",
    );
}

#[test]
fn g_05_a_schedule_that_is_stored_over_a_later_change_is_caught() {
    assert_caught_in(
        WorldMode::Schedules,
        PlantedBug::SchedulesWithoutCompare,
        "what is decided stays decided",
    );
}
