//! The conformance suite of the store seam.
//!
//! Each case is a function over a fresh store. [`store_conformance!`](crate::store_conformance) makes one named test of
//! each case:
//!
//! ```
//! use std::sync::Arc;
//!
//! use dueline_ports::{Store, fakes::MemoryStore};
//!
//! /// A fresh store, and a guard that must outlive the store: a directory, a server, or nothing.
//! async fn fresh() -> (Arc<dyn Store>, ()) {
//!     (Arc::new(MemoryStore::new()), ())
//! }
//!
//! dueline_ports::store_conformance!(fresh);
//! # fn main() {}
//! ```
//!
//! The crate that uses the macro needs tokio with macros and the multi-threaded runtime as a dev-dependency, because
//! some cases run claims and submits in parallel.

#![expect(
    missing_docs,
    reason = "the name of a case is the sentence that must hold"
)]

mod board;
mod changes;
mod create;
mod due;
mod effects;
mod families;
mod jobs;
mod kit;
mod lanes;
mod life;
mod list;
mod model;
mod safety;
mod schedules;
mod staged;
mod unique;
mod verbs;
mod workers;

pub use board::*;
pub use changes::*;
pub use create::*;
pub use due::*;
pub use effects::*;
pub use families::*;
pub use jobs::*;
pub use lanes::*;
pub use life::*;
pub use list::*;
pub use model::*;
pub use safety::*;
pub use schedules::*;
pub use staged::*;
pub use unique::*;
pub use verbs::*;
pub use workers::*;

/// Makes a named test of every case of the store suite.
///
/// The argument is an async function or closure that returns a fresh store as `Arc<dyn Store>` together with a guard
/// that is dropped after the store: `async fn fresh() -> (Arc<dyn Store>, TempDir)`.
#[macro_export]
macro_rules! store_conformance {
    ($factory:expr) => {
        $crate::store_conformance! { @cases $factory;
            f_072_one_of_fifty_claims_of_a_chosen_task_wins
            f_072_a_due_task_is_claimed_before_its_message_is_sent
            f_079_a_claim_lasts_as_long_as_its_owner_has_asked
            f_053_an_extension_ends_a_claim_that_never_expires
            a_17_a_repeated_claim_is_the_same_and_a_second_one_is_refused
            f_086_every_post_and_every_end_is_told_once
            f_086_the_moves_of_a_task_are_told
            f_086_tasks_of_other_jobs_are_not_told
            f_086_a_position_of_another_count_is_told_of_a_gap
            f_086_each_of_several_readers_is_told_everything
            f_086_a_task_that_is_deleted_is_told_by_a_store_of_one_process
            f_001_a_task_without_a_time_is_created_as_enqueued
            f_009_a_task_with_a_future_time_waits_as_new
            f_010_a_task_with_a_past_time_is_created_as_enqueued
            a_due_task_of_a_paused_job_waits_as_new
            a_due_task_that_may_not_be_enqueued_waits_as_new
            a_due_task_can_be_created_as_claimed_by_a_reserved_worker
            f_002_the_same_submit_twice_is_one_task
            f_002_one_id_with_other_content_is_refused_and_changes_nothing
            f_018_the_id_of_a_finished_task_never_runs_again
            one_key_within_a_job_is_one_task
            a_key_is_free_again_when_its_task_is_pruned
            g_06_a_key_is_held_until_its_task_starts
            g_06_a_key_is_held_until_its_task_ends
            g_06_a_period_ends_the_hold_on_a_key
            g_06_a_submit_is_refused_with_the_holder_of_its_key
            g_06_a_task_that_waits_is_replaced_by_a_later_submit
            g_06_a_task_whose_run_has_begun_is_not_replaced
            g_06_of_racing_submits_of_one_key_one_creates_the_task
            g_06_a_submit_that_races_with_a_claim_is_never_lost
            g_06_what_makes_a_task_unique_is_kept
            two_concurrent_submits_of_one_id_create_one_task
            f_001_a_submit_to_an_unknown_job_is_refused
            one_bad_submit_of_a_batch_does_not_affect_the_others
            one_submit_twice_in_a_batch_is_one_task
            f_005_payloads_are_kept_byte_for_byte
            f_006_rare_fields_are_kept
            a_task_lives_from_submit_to_success
            claim_and_start_can_be_one_write
            start_and_outcome_can_be_one_write
            f_043_history_has_one_entry_per_run_that_failed
            f_050_a_checkpoint_is_kept_apart_from_the_payload
            f_154_a_trigger_keeps_the_payload_and_checkpoint_that_it_does_not_read
            f_056_a_retriable_task_is_due_again_after_its_backoff
            a_fatal_failure_ends_the_task_with_tries_left
            a_task_without_a_try_left_fails
            a_lost_run_uses_a_try_and_its_task_is_enqueued_at_once
            a_lost_claim_uses_no_try
            a_task_that_keeps_losing_its_claims_is_trashed
            a_lost_message_is_replaced_without_using_a_try
            tasks_of_a_dead_worker_are_enqueued_before_their_leases_end
            a_26_a_run_never_outlasts_its_run_timeout_and_is_reclaimed_a_grace_later
            a_26_an_outcome_within_the_grace_after_the_run_timeout_counts
            f_013_the_time_of_change_never_moves_back
            the_history_of_a_hundred_failures_is_bounded
            a_pending_task_can_be_cancelled
            a_running_task_is_cancelled_by_a_request_to_its_worker
            a_pending_task_can_be_modified
            f_011_a_reschedule_keeps_the_original_run_time
            run_numbers_never_repeat_after_an_abandon_or_a_redrive
            a_new_priority_replaces_the_message_of_an_enqueued_task
            f_018_an_owned_task_cannot_be_modified
            a_failed_task_can_be_redriven
            a_gate_can_drop_a_task_without_an_owner
            f_153_a_list_that_drops_what_it_shows_misses_no_task
            f_077_an_owner_can_trash_its_task
            f_075_an_owner_can_abandon_its_task
            an_owner_can_set_the_end_of_its_lease
            a_task_that_is_not_waiting_cannot_be_released
            d_01_a_retry_of_one_task_touches_no_other
            d_02_a_stale_token_is_refused_and_nothing_is_stored
            f_072_one_of_fifty_claims_wins
            a_repeated_command_of_any_verb_is_recognised
            an_unknown_task_is_not_found
            one_bad_command_of_a_batch_does_not_affect_the_others
            commands_for_one_task_in_one_call_are_applied_in_their_order
            counts_are_exact_after_concurrent_writes
            nothing_is_due_in_an_empty_store
            f_009_a_task_is_due_at_its_time_and_not_before
            an_unfinished_task_becomes_due_in_every_state
            a_task_is_due_until_it_has_moved
            the_limit_is_per_job_and_the_page_says_that_there_is_more
            a_limit_of_zero_hides_pending_tasks_but_never_owned_ones
            due_tasks_of_a_paused_job_are_still_returned
            a_share_returns_only_its_jobs_and_all_shares_together_return_all
            f_111_a_finished_task_of_a_job_with_a_sink_owes_its_delivery
            f_111_a_delivery_that_failed_is_due_after_its_backoff
            g_19_a_task_that_owes_is_neither_pruned_nor_deleted_with_its_job
            f_111_a_redrive_clears_what_a_task_owes
            tasks_that_owe_have_limits_of_their_own
            f_095_a_task_waits_until_each_of_its_predecessors_has_ended
            a_12_a_failed_predecessor_cancels_a_task_with_a_reason
            f_095_a_followed_task_owes_its_end_in_whatever_state_it_was_followed
            f_095_waiting_tasks_are_checked_and_hide_no_other
            f_002_a_repeated_submit_that_waits_is_one_task
            f_095_followers_are_read_page_by_page_and_each_once
            a_12_a_task_that_was_cancelled_because_of_another_one_waits_for_it_again
            a_14_a_closed_family_is_open_again_when_a_child_is_redriven
            f_098_edges_from_an_unknown_job_are_refused
            edges_are_deleted_some_time_after_their_task
            f_094_open_children_are_those_whose_end_is_not_recorded
            f_094_an_open_family_is_kept_until_it_is_closed
            a_13_what_a_run_has_staged_goes_on_with_its_success_and_is_discarded_otherwise
            a_13_a_later_run_takes_over_what_an_earlier_one_has_staged
            f_152_due_tasks_of_higher_priority_come_first
            enqueued_tasks_are_due_after_all_others
            f_022_higher_priority_is_ready_first
            f_024_the_oldest_submit_is_ready_first_within_a_priority
            a_15_ready_order_is_priority_then_due_time_then_submit_order
            only_enqueued_tasks_of_the_job_are_ready
            a_task_that_is_enqueued_again_keeps_its_place_in_the_ready_order
            owned_tasks_are_returned_by_worker
            a_job_without_tasks_has_an_empty_list
            f_024_the_newest_task_is_listed_first
            f_024_the_oldest_task_is_listed_first_on_request
            f_024_tasks_that_wait_are_listed_by_due_time
            f_024_tasks_that_wait_in_lanes_are_listed_by_due_time_with_the_others
            f_024_a_cursor_belongs_to_its_order
            paging_is_stable_while_tasks_are_added
            a_foreign_cursor_is_refused
            a_list_can_be_filtered_by_state
            a_list_can_be_filtered_by_tag_name_or_key
            a_list_can_be_filtered_by_due_time
            a_job_is_read_with_every_setting
            jobs_are_listed_by_name
            replacing_a_job_keeps_its_creator_and_creation_time
            a_changed_policy_applies_to_the_next_transition_of_each_task
            a_job_can_be_paused_and_resumed
            f_126_a_level_of_a_quota_is_replaced_by_one_of_two_callers
            g_07_no_more_tasks_get_places_than_may_run_at_once
            g_07_callers_at_once_share_the_places
            g_07_waiting_tasks_of_a_fair_job_are_read_by_lane
            g_07_a_task_is_in_its_lane_while_it_waits_and_only_then
            g_07_tasks_from_before_the_fair_share_get_into_their_lanes_later
            g_07_places_are_limited_in_each_lane_and_ahead_of_the_workers
            g_07_lanes_without_due_tasks_hide_none_that_have_some
            f_015_a_job_with_unfinished_tasks_is_not_deleted
            deleting_a_job_removes_its_finished_tasks
            stats_count_by_state_and_name_the_oldest_due_time
            f_110_only_finished_tasks_past_their_retention_are_pruned
            f_103_a_schedule_is_kept_with_every_setting
            a_schedule_is_replaced_only_if_it_has_not_changed
            schedules_of_a_job_are_listed_by_name
            g_05_a_schedule_is_due_at_its_time_and_not_before
            all_shares_together_return_every_due_schedule_once
            a_job_with_schedules_is_not_deleted
            f_115_worker_records_are_kept_replaced_and_removed
            random_commands_match_the_pure_function_seed_1
            random_commands_match_the_pure_function_seed_2
            random_commands_match_the_pure_function_seed_3
        }
    };
    (@cases $factory:expr; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let make = $factory;
                let (store, _guard) = make().await;
                $crate::conformance::store::$case(store).await;
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_macro() {
        let listed = include_str!("mod.rs");
        for cases in [
            include_str!("board.rs"),
            include_str!("changes.rs"),
            include_str!("create.rs"),
            include_str!("life.rs"),
            include_str!("verbs.rs"),
            include_str!("safety.rs"),
            include_str!("due.rs"),
            include_str!("effects.rs"),
            include_str!("families.rs"),
            include_str!("list.rs"),
            include_str!("jobs.rs"),
            include_str!("lanes.rs"),
            include_str!("schedules.rs"),
            include_str!("unique.rs"),
            include_str!("workers.rs"),
            include_str!("model.rs"),
        ] {
            for line in cases.lines() {
                let Some(rest) = line.strip_prefix("pub async fn ") else {
                    continue;
                };
                let name = rest.split('(').next().unwrap_or(rest);
                let line = format!("            {name}\n");
                assert!(listed.contains(&line), "{name} is in no test");
            }
        }
    }
}
