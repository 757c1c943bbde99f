//! The invariants hold for any sequence of events, even when the clock jumps.

mod random;

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Backoff, Children, Event, Jitter, JobName, NewTask, Outcome, Policy, Rejected, RetryClass,
    State, StateKind, Task, TaskId, TaskOptions, Timestamp, Token, Transition, Verb, WriteId,
    apply, check_task, check_transition, limits,
};
use proptest::prelude::*;

use crate::random::{EventDraft, START, created, event, event_draft, policy};

/// Checks one decision of `apply`.
fn check(
    before: &Task,
    job: &Policy,
    draft: &EventDraft,
    event: &Event,
    decided: &Result<Task, Rejected>,
) -> Result<(), TestCaseError> {
    let carries_token = !matches!(
        draft.verb,
        Verb::Follow
            | Verb::Close
            | Verb::Release
            | Verb::Cancel
            | Verb::Modify
            | Verb::Replace
            | Verb::Drop
            | Verb::Redrive
            | Verb::Revive
            | Verb::Reopen
            | Verb::Adopt
    );
    let after = match decided {
        Err(rejected) => {
            prop_assert_eq!(rejected.verb, draft.verb);
            prop_assert_eq!(rejected.state, before.kind());
            return Ok(());
        }
        Ok(after) => after,
    };
    prop_assert!(!(draft.stale && carries_token), "stale {event:?}");
    prop_assert_eq!(check_transition(before, after), Ok(()));
    prop_assert!(
        !before.kind().is_final()
            || matches!(
                draft.verb,
                Verb::Redrive
                    | Verb::Revive
                    | Verb::Adopt
                    | Verb::Reopen
                    | Verb::Settle
                    | Verb::Follow
                    | Verb::Close
            )
    );
    let ends = after.kind().is_final() && !before.kind().is_final();
    let is_parent = before.children() != Children::None;
    let owes = job.sink.is_some() || before.has_followers() || is_parent || before.has_staged();
    prop_assert!(!ends || after.owed.is_some() == owes);
    prop_assert!(after.changed_at >= before.changed_at);
    prop_assert!(after.kind().is_final() || after.trigger_at().is_some());
    let policy = before.policy(job);
    if let Some(retries_max) = policy.retry.retries_max {
        prop_assert!(after.tries <= retries_max + 1, "{} tries", after.tries);
    }
    prop_assert!(after.losses <= policy.losses_max + 1);
    prop_assert!(!after.cancel_requested || after.kind().is_owned());
    let is_enqueued = after.kind() == StateKind::Enqueued;
    let is_marked = draft.verb == Verb::Follow;
    prop_assert!(!is_enqueued || is_marked || before.state.token() != after.state.token());
    let history = after.history.clone().unwrap_or_default();
    prop_assert!(history.runs.len() <= limits().history_len_max);
    for run in &history.runs {
        prop_assert!(run.info.len() <= limits().error_bytes_max);
        prop_assert!(run.started_at <= run.finished_at);
    }
    if let (State::Retriable { retry_at }, Verb::Finish | Verb::Trigger | Verb::Reclaim) =
        (&after.state, draft.verb)
    {
        let failures = after.tries - 1;
        let (class, delay) = match event {
            Event::Finish {
                outcome: Outcome::Retriable { class, delay, .. },
                ..
            } => (*class, *delay),
            _ => (RetryClass::WorkerLost, None),
        };
        let least = policy.retry.wait(class, failures, Jitter::default());
        let waited = retry_at.since(after.changed_at) + Duration::from_millis(1);
        prop_assert!(waited >= delay.or(least).unwrap_or_default());
    }
    Ok(())
}

/// Checks that the task has exactly the changes of the transition.
fn check_advance(task: &Task, next: &Task, transition: &Transition) -> Result<(), TestCaseError> {
    prop_assert_eq!(&next.state, &transition.state);
    prop_assert_eq!(
        (next.tries, next.losses),
        (transition.tries, transition.losses)
    );
    prop_assert_eq!(next.cancel_requested, transition.cancel_requested);
    prop_assert_eq!(next.changed_at, transition.changed_at);
    prop_assert_eq!(next.started_at, transition.started_at);
    prop_assert_eq!(next.finished_at, transition.finished_at);
    prop_assert_eq!(next.write, transition.write);
    prop_assert_eq!(&next.owed, &transition.owed);
    let change = transition.modified.clone().unwrap_or_default();
    prop_assert_eq!(next.run_at, change.run_at.unwrap_or(task.run_at));
    prop_assert_eq!(next.priority, change.priority.unwrap_or(task.priority));
    prop_assert_eq!(next.weight, task.weight);
    prop_assert_eq!(&next.payload, &task.payload);
    prop_assert_eq!(next.original_run_at(), task.original_run_at());
    let others = |task: &Task| TaskOptions {
        original_run_at: None,
        family: None,
        ..task.options.as_deref().cloned().unwrap_or_default()
    };
    match &transition.options {
        Some(options) => prop_assert_eq!(others(next).unique, options.unique.clone()),
        None => prop_assert_eq!(others(next), others(task)),
    }
    let family = transition.family.as_deref().or(task.family());
    prop_assert_eq!(next.family(), family);
    let owner = task.lease().map(|lease| &lease.worker);
    let last_owner = owner.or(task.last_owner.as_ref());
    let last_owner = last_owner.filter(|_| next.kind().is_final());
    prop_assert_eq!(next.last_owner.as_ref(), last_owner);
    if next.kind() == StateKind::Processing && task.kind() != StateKind::Processing {
        prop_assert!(
            task.latest_attempt()
                .is_none_or(|before| before < next.attempt())
        );
    }
    let checkpoint = transition.checkpoint.clone().or(task.checkpoint.clone());
    prop_assert_eq!(&next.checkpoint, &checkpoint);
    let runs = |task: &Task| {
        let history = task.history.clone().unwrap_or_default();
        history.runs.len() + history.dropped as usize
    };
    prop_assert_eq!(
        runs(next),
        runs(task) + usize::from(transition.run.is_some())
    );
    let error = transition.error.clone().or(task.error.clone());
    let is_good = transition.fresh || next.kind() == StateKind::Succeeded;
    prop_assert_eq!(&next.error, &error.filter(|_| !is_good));
    Ok(())
}

fn check_sequence(
    mut task: Task,
    job: &Policy,
    drafts: &[EventDraft],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(check_task(&task), Ok(()));
    let mut clock = START;
    for (draft, fresh) in drafts.iter().zip(100..) {
        clock += draft.jump_ms;
        let now = Timestamp::clamped(clock);
        let event = event(&task, draft, now, fresh);
        let write = WriteId::from_random(fresh);
        let decided = apply(&task, job, &event, write, now);
        prop_assert_eq!(&decided, &apply(&task, job, &event, write, now));
        let next = match decided {
            Err(rejected) => Err(rejected),
            Ok(transition) => {
                let mut next = task.clone();
                next.advance(transition.clone());
                prop_assert_eq!(transition.write, write);
                check_advance(&task, &next, &transition)?;
                Ok(next)
            }
        };
        check(&task, job, draft, &event, &next)?;
        task = next.unwrap_or(task);
    }
    Ok(())
}

/// A task whose every run fails or is lost, as the bits of `lost` say.
fn run_badly(job: &Policy, lost: u64) -> Task {
    let name = JobName::parse("mail").unwrap();
    let new = NewTask::now(TaskId::from_bytes([3; 16]), name, Bytes::new());
    let (token, write) = (Token::from_random(1), WriteId::from_random(1));
    let mut task = new.into_task(job, Timestamp::clamped(START), token, write, true);
    let mut now = task.created_at;
    for round in 0..200_u64 {
        let lost = (lost >> (round % 64)) & 1 == 1;
        let verb = match task.kind() {
            kind if kind.is_final() => break,
            StateKind::Enqueued => Verb::Claim,
            StateKind::Processing if !lost => Verb::Finish,
            _ => Verb::Trigger,
        };
        if verb == Verb::Trigger {
            now = now.max(task.state.trigger_at().unwrap());
        }
        let draft = EventDraft {
            verb,
            stale: false,
            jump_ms: 0,
            outcome: 5,
            class: RetryClass::Standard,
            delay_ms: None,
            flag: round % 3 != 0,
            random: round,
        };
        let event = event(&task, &draft, now, 100 + round);
        let transition = apply(&task, job, &event, WriteId::from_random(100 + round), now);
        task.advance(transition.unwrap());
    }
    task
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_sequence_of_events_keeps_every_invariant(
        task in created(), job in policy(), drafts in proptest::collection::vec(event_draft(), 1..60)
    ) {
        check_sequence(task, &job, &drafts)?;
    }

    #[test]
    fn a_task_whose_runs_all_fail_or_get_lost_ends_after_its_tries(
        mut job in policy(), lost in any::<u64>()
    ) {
        job.retry.retries_max = job.retry.retries_max.or(Some(5));
        let kind = run_badly(&job, lost).kind();
        prop_assert!(matches!(kind, StateKind::Failed | StateKind::Trashed), "{kind}");
    }

    #[test]
    fn waits_are_finite_for_all_numbers(
        initial in any::<u64>(), more in any::<u64>(), multiplier in 1.0_f64..=100.0,
        failures in any::<u32>(), bits in any::<u64>()
    ) {
        let initial = Duration::from_secs(initial);
        let max = initial.saturating_add(Duration::from_secs(more));
        let backoff = Backoff::new(initial, multiplier, 1.0, max).unwrap();
        let wait = backoff.wait(failures, Jitter::from_random(bits));
        prop_assert!(wait.as_secs_f64() >= initial.as_secs_f64() * 0.999);
    }
}

#[test]
fn an_initial_wait_of_zero_means_that_no_retry_waits() {
    let backoff = Backoff::new(Duration::ZERO, 2.0, 0.5, Duration::from_secs(1)).unwrap();
    for failures in [0, 1, 1_000, 2_000, u32::MAX] {
        let wait = backoff.wait(failures, Jitter::from_random(u64::MAX));
        assert_eq!(wait, Duration::ZERO);
    }
}
