//! Claims, also those of chosen tasks.

use std::time::Duration;

use super::{
    tests::{CHANGED, NEXT, RIGHT, TRIGGER, apply_checked, at, claim_event, sample, token, write},
    *,
};
use crate::{Lease, Overrides};

/// A claim without a message, with a token of its own.
pub(super) fn choose(lifetime: ClaimLifetime) -> Event {
    Event::ClaimChosen(ClaimChosen {
        token: token(NEXT),
        worker: WorkerId::parse("ann").unwrap(),
        lifetime,
    })
}

fn expires_at(task: &Task) -> Timestamp {
    task.lease().unwrap().expires_at
}

#[test]
fn f_072_a_chosen_task_is_claimed_when_it_is_enqueued_or_due() {
    let event = choose(ClaimLifetime::OfJob);
    for kind in StateKind::ALL {
        let early = apply_checked(&sample(kind), &event, at(TRIGGER - 1));
        let due = apply_checked(&sample(kind), &event, at(TRIGGER));
        let reason = match kind {
            StateKind::Enqueued => None,
            StateKind::New | StateKind::Retriable => Some(Reason::NotDue),
            StateKind::Waiting => Some(Reason::Waiting),
            StateKind::Claimed | StateKind::Processing => Some(Reason::AlreadyClaimed),
            _ => Some(Reason::Finished),
        };
        let refused = early.err();
        assert_eq!(
            refused.as_ref().map(|refused| refused.reason),
            reason,
            "{kind}"
        );
        let owner = refused.and_then(|refused| refused.owner);
        assert_eq!(owner.is_some(), kind.is_owned(), "{kind}");
        let is_claimable = matches!(reason, None | Some(Reason::NotDue));
        assert_eq!(due.is_ok(), is_claimable, "{kind}");
        if let Ok(claimed) = due {
            assert_eq!(claimed.state.token(), Some(token(NEXT)));
        }
    }
}

#[test]
fn f_079_the_lifetime_is_that_of_the_job_of_the_owner_or_without_end() {
    let claimed = |lifetime| {
        let enqueued = sample(StateKind::Enqueued);
        apply_checked(&enqueued, &choose(lifetime), at(TRIGGER - 1)).unwrap()
    };
    let now = at(TRIGGER - 1);
    let half = Duration::from_millis(500);
    let of_job = now.after(Policy::default().claim_timeout);
    assert_eq!(expires_at(&claimed(ClaimLifetime::OfJob)), of_job);
    assert_eq!(
        expires_at(&claimed(ClaimLifetime::For(half))),
        now.after(half)
    );
    let never = claimed(ClaimLifetime::Never);
    assert!(never.lease().is_some_and(Lease::never_ends));
    assert_eq!(never.state.trigger_at(), Some(Timestamp::MAX));
}

#[test]
fn f_053_a_claim_without_an_end_gets_one_by_an_extension() {
    let enqueued = sample(StateKind::Enqueued);
    let never = apply_checked(&enqueued, &choose(ClaimLifetime::Never), at(TRIGGER)).unwrap();
    let by = Duration::from_secs(1);
    let token = token(NEXT);
    let extended = apply_checked(&never, &Event::Extend { token, by }, at(TRIGGER)).unwrap();
    assert_eq!(expires_at(&extended), at(TRIGGER).after(by));
    assert!(!extended.lease().is_some_and(Lease::never_ends));
}

#[test]
fn a_run_does_not_shorten_a_claim_that_its_owner_has_made_long() {
    let policy = Policy::default();
    let token = token(NEXT);
    let started = |lifetime| {
        let enqueued = sample(StateKind::Enqueued);
        let claimed = apply_checked(&enqueued, &choose(lifetime), at(TRIGGER)).unwrap();
        apply_checked(&claimed, &Event::Start { token }, at(TRIGGER + 1)).unwrap()
    };
    let of_run = at(TRIGGER + 1).after(policy.heartbeat_timeout);
    assert_eq!(expires_at(&started(ClaimLifetime::OfJob)), of_run);
    let short = ClaimLifetime::For(Duration::from_millis(50));
    assert_eq!(expires_at(&started(short)), of_run);
    let hour = Duration::from_secs(3_600);
    let long = started(ClaimLifetime::For(hour));
    assert_eq!(expires_at(&long), at(TRIGGER).after(hour));
    let never = started(ClaimLifetime::Never);
    assert!(never.lease().is_some_and(Lease::never_ends));
    // Neither does a heartbeat.
    let beat = apply_checked(&never, &Event::Heartbeat { token }, at(TRIGGER + 9)).unwrap();
    assert!(beat.lease().is_some_and(Lease::never_ends));
}

#[test]
fn the_message_of_a_chosen_task_is_stale_for_good() {
    let enqueued = sample(StateKind::Enqueued);
    let claimed = apply_checked(&enqueued, &choose(ClaimLifetime::OfJob), at(TRIGGER)).unwrap();
    let message = Event::Claim(Claim {
        token: token(RIGHT),
        worker: WorkerId::parse("w@2").unwrap(),
        start: false,
    });
    let reason = |task: &Task| {
        apply_checked(task, &message, at(TRIGGER))
            .unwrap_err()
            .reason
    };
    assert_eq!(reason(&claimed), Reason::AlreadyClaimed);
    let abandon = Event::Abandon {
        token: token(NEXT),
        next: token(99),
    };
    let abandoned = apply_checked(&claimed, &abandon, at(TRIGGER)).unwrap();
    assert_eq!(reason(&abandoned), Reason::Lost);
}

#[test]
fn a_claim_does_not_start_the_only_try_of_a_task() {
    let mut single_try = sample(StateKind::Enqueued);
    let overrides = Overrides {
        retries_max: Some(0),
        ..Overrides::default()
    };
    single_try.options = Some(Box::new(crate::TaskOptions {
        overrides: Some(overrides),
        ..crate::TaskOptions::default()
    }));
    let claim = claim_event(token(RIGHT), true);
    let policy = Policy::default();
    let claimed = apply(&single_try, &policy, &claim, write(9), at(CHANGED)).unwrap();
    // The answer to the claim may be lost before the task has run, so the claim must not use the try.
    assert_eq!(
        (claimed.state.kind(), claimed.tries),
        (StateKind::Claimed, 0)
    );
    let other = apply(
        &sample(StateKind::Enqueued),
        &policy,
        &claim,
        write(9),
        at(CHANGED),
    )
    .unwrap();
    assert_eq!(
        (other.state.kind(), other.tries),
        (StateKind::Processing, 1)
    );
}
