//! Whatever happens to a task, in whatever order and by whatever clock, the invariants hold.

mod tries;

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Backoff, Event, Jitter, JobName, NewTask, Outcome, Policy, Rejected, RetryClass, State,
    StateKind, Task, TaskId, Timestamp, Token, Transition, Verb, WriteId, apply, check_step,
    check_task, limits,
};
use proptest::prelude::*;

use crate::tries::{START, Try, a_try, created, event, policy};

/// What must hold of one decision.
fn check(
    before: &Task,
    job: &Policy,
    attempt: &Try,
    event: &Event,
    decided: &Result<Task, Rejected>,
) -> Result<(), TestCaseError> {
    let carries_token = !matches!(
        attempt.verb,
        Verb::Release | Verb::Cancel | Verb::Modify | Verb::Drop | Verb::Redrive
    );
    let after = match decided {
        Err(rejected) => {
            prop_assert_eq!(rejected.verb, attempt.verb);
            prop_assert_eq!(rejected.state, before.kind());
            return Ok(());
        }
        Ok(after) => after,
    };
    prop_assert!(!(attempt.stale && carries_token), "stale {event:?}");
    prop_assert_eq!(check_step(before, after), Ok(()));
    prop_assert!(!before.kind().is_final() || attempt.verb == Verb::Redrive);
    prop_assert!(after.changed_at >= before.changed_at);
    prop_assert!(
        after.kind().is_final()
            || after.kind() == StateKind::Waiting
            || after.state.trigger_at().is_some()
    );
    let policy = before.policy(job);
    if let Some(retries_max) = policy.retry.retries_max {
        prop_assert!(after.tries <= retries_max + 1, "{} tries", after.tries);
    }
    prop_assert!(after.losses <= policy.losses_max + 1);
    prop_assert!(!after.cancel_requested || after.kind().is_owned());
    let handed_on = after.kind() == StateKind::Enqueued;
    prop_assert!(!handed_on || before.state.token() != after.state.token());
    let history = after.history.clone().unwrap_or_default();
    prop_assert!(history.runs.len() <= limits().history_len_max);
    for run in &history.runs {
        prop_assert!(run.info.len() <= limits().error_bytes_max);
        prop_assert!(run.started_at <= run.finished_at);
    }
    if let (State::Retriable { retry_at }, Verb::Finish | Verb::Trigger | Verb::OwnerLost) =
        (&after.state, attempt.verb)
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

/// What the transition tells is what the task then is, and nothing else changed.
fn check_advance(task: &Task, next: &Task, told: &Transition) -> Result<(), TestCaseError> {
    prop_assert_eq!(&next.state, &told.state);
    prop_assert_eq!((next.tries, next.losses), (told.tries, told.losses));
    prop_assert_eq!(next.cancel_requested, told.cancel_requested);
    prop_assert_eq!(next.changed_at, told.changed_at);
    prop_assert_eq!(next.started_at, told.started_at);
    prop_assert_eq!(next.finished_at, told.finished_at);
    prop_assert_eq!(next.write, told.write);
    let change = told.modified.clone().unwrap_or_default();
    prop_assert_eq!(next.run_at, change.run_at.unwrap_or(task.run_at));
    prop_assert_eq!(next.priority, change.priority.unwrap_or(task.priority));
    prop_assert_eq!(next.weight, task.weight);
    prop_assert_eq!(&next.payload, &task.payload);
    prop_assert_eq!(&next.extras, &task.extras);
    let checkpoint = told.checkpoint.clone().or(task.checkpoint.clone());
    prop_assert_eq!(&next.checkpoint, &checkpoint);
    let runs = |task: &Task| {
        let history = task.history.clone().unwrap_or_default();
        history.runs.len() + history.dropped as usize
    };
    prop_assert_eq!(runs(next), runs(task) + usize::from(told.run.is_some()));
    let error = told.error.clone().or(task.error.clone());
    let is_good = told.fresh || next.kind() == StateKind::Succeeded;
    prop_assert_eq!(&next.error, &error.filter(|_| !is_good));
    Ok(())
}

fn check_sequence(mut task: Task, job: &Policy, tries: &[Try]) -> Result<(), TestCaseError> {
    prop_assert_eq!(check_task(&task), Ok(()));
    let mut clock = START;
    for (attempt, fresh) in tries.iter().zip(100..) {
        clock += attempt.jump_ms;
        let now = Timestamp::clamped(clock);
        let event = event(&task, attempt, now, fresh);
        let write = WriteId::from_random(fresh);
        let decided = apply(&task, job, &event, write, now);
        prop_assert_eq!(&decided, &apply(&task, job, &event, write, now));
        let next = match decided {
            Err(rejected) => Err(rejected),
            Ok(told) => {
                let mut next = task.clone();
                next.advance(told.clone());
                prop_assert_eq!(told.write, write);
                check_advance(&task, &next, &told)?;
                Ok(next)
            }
        };
        check(&task, job, attempt, &event, &next)?;
        task = next.unwrap_or(task);
    }
    Ok(())
}

/// A task whose every run fails or is lost, by the bits of `lost`.
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
        let attempt = Try {
            verb,
            stale: false,
            jump_ms: 0,
            outcome: 5,
            class: RetryClass::Standard,
            delay_ms: None,
            flag: round % 3 != 0,
            random: round,
        };
        let event = event(&task, &attempt, now, 100 + round);
        let transition = apply(&task, job, &event, WriteId::from_random(100 + round), now);
        task.advance(transition.unwrap());
    }
    task
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_sequence_of_events_keeps_every_invariant(
        task in created(), job in policy(), tries in proptest::collection::vec(a_try(), 1..60)
    ) {
        check_sequence(task, &job, &tries)?;
    }

    #[test]
    fn a_task_that_is_always_failed_or_lost_ends_after_its_tries(
        mut job in policy(), lost in any::<u64>()
    ) {
        job.retry.retries_max = job.retry.retries_max.or(Some(5));
        let kind = run_badly(&job, lost).kind();
        prop_assert!(matches!(kind, StateKind::Failed | StateKind::Trashed), "{kind}");
    }

    #[test]
    fn waits_stay_finite_whatever_the_numbers(
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
fn no_initial_wait_means_no_wait_ever() {
    let backoff = Backoff::new(Duration::ZERO, 2.0, 0.5, Duration::from_secs(1)).unwrap();
    for failures in [0, 1, 1_000, 2_000, u32::MAX] {
        let wait = backoff.wait(failures, Jitter::from_random(u64::MAX));
        assert_eq!(wait, Duration::ZERO);
    }
}
