//! Tasks that wait for others: which ends let them go on, and what the end of a task causes.

use bytes::Bytes;

use super::*;
use crate::{
    Due, EdgeKind, Jitter, JobName, NewTask, Predecessor, Reason, Sink, TaskAddress, TaskEnd,
    TaskId, TaskOptions, TriggerOn, check_task, check_transition,
};

fn address(number: u8) -> TaskAddress {
    let job = JobName::parse("import").unwrap();
    let id = TaskId::from_bytes([number; 16]);
    TaskAddress { job, id }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::clamped(seconds * 1_000)
}

/// A new task that waits for the given ones.
fn waiting(after: &[u8], trigger_on: TriggerOn, due: Due) -> Task {
    let family = Family {
        after: after
            .iter()
            .map(|n| Predecessor::open(address(*n)))
            .collect(),
        trigger_on,
        ..Family::default()
    };
    let id = TaskId::from_bytes([200; 16]);
    let mut new = NewTask::now(id, JobName::parse("mail").unwrap(), Bytes::new());
    new.due = due;
    new.options = Some(Box::new(TaskOptions {
        family: Some(Box::new(family)),
        ..TaskOptions::default()
    }));
    let (token, write) = (Token::from_random(1), WriteId::from_random(1));
    let task = new.into_task(&Policy::default(), at(1), token, write, true);
    assert_eq!(check_task(&task), Ok(()));
    task
}

fn after(task: &Task, event: &Event, seconds: i64) -> Result<Task, Reason> {
    let write = WriteId::from_random(seconds.unsigned_abs() + 100);
    let decided = apply(task, &Policy::default(), event, write, at(seconds));
    let mut after = task.clone();
    after.advance(decided.map_err(|rejected| rejected.reason)?);
    assert_eq!(check_transition(task, &after), Ok(()));
    Ok(after)
}

pub(super) fn settle_event(task: &Task, failed: Option<&str>) -> Event {
    Event::Settle(Settle {
        seen: task.write,
        effect: Effect::Deliver,
        failed: failed.map(|error| (error.into(), Jitter::default())),
    })
}

/// A later run submits the task again that this one has staged.
pub(super) fn adopt_event(seen: Token) -> Event {
    Event::Adopt(Box::new(Adopt {
        seen,
        family: Family::default(),
        change: Modification::default(),
    }))
}

fn release(from: u8, end: TaskEnd) -> Event {
    Event::Release(Release {
        kind: EdgeKind::Follower,
        from: address(from),
        end,
        token: Some(Token::from_random(9)),
    })
}

#[test]
fn f_095_a_task_goes_on_when_the_last_of_its_predecessors_has_succeeded() {
    let task = waiting(&[1, 2, 3], TriggerOn::Success, Due::Now);
    assert_eq!(task.state, State::Waiting { check_at: at(61) });
    let one = after(&task, &release(2, TaskEnd::Succeeded), 2).unwrap();
    assert_eq!(one.state, State::Waiting { check_at: at(61) });
    // A task may be notified of an end more than once, and the end counts once.
    let again = after(&one, &release(2, TaskEnd::Succeeded), 3);
    assert_eq!(again, Err(Reason::NotWaiting));
    let unknown = after(&one, &release(4, TaskEnd::Succeeded), 3);
    assert_eq!(unknown, Err(Reason::NotWaiting));
    let two = after(&one, &release(3, TaskEnd::Succeeded), 4).unwrap();
    assert_eq!(two.kind(), StateKind::Waiting);
    let three = after(&two, &release(1, TaskEnd::Succeeded), 5).unwrap();
    assert_eq!(three.kind(), StateKind::Enqueued);
    let late = after(&three, &release(1, TaskEnd::Succeeded), 6);
    assert_eq!(late, Err(Reason::NotWaiting));
}

#[test]
fn f_096_a_released_task_still_waits_for_its_own_due_time() {
    let task = waiting(&[1], TriggerOn::Success, Due::At(at(90)));
    let new = after(&task, &release(1, TaskEnd::Succeeded), 5).unwrap();
    assert_eq!(new.state, State::New { due_at: at(90) });
    let late = after(&task, &release(1, TaskEnd::Succeeded), 91).unwrap();
    assert_eq!(late.kind(), StateKind::Enqueued);
    // A job that holds its tasks back leaves them to the scan.
    let held = Event::Release(Release {
        kind: EdgeKind::Follower,
        from: address(1),
        end: TaskEnd::Succeeded,
        token: None,
    });
    let held = after(&task, &held, 91).unwrap();
    assert_eq!(held.state, State::New { due_at: at(90) });
}

#[test]
fn a_12_each_rule_accepts_its_ends_and_any_other_end_cancels_with_a_reason() {
    use TaskEnd::*;
    for (rule, accepted) in [
        (TriggerOn::Success, &[Succeeded][..]),
        (
            TriggerOn::Failure,
            &[Failed, Cancelled, Trashed, Dropped, ChildrenFailed],
        ),
        (TriggerOn::Always, &TaskEnd::ALL),
    ] {
        for end in TaskEnd::ALL {
            let task = waiting(&[1, 2], rule, Due::Now);
            let moved = after(&task, &release(1, end), 5).unwrap();
            if accepted.contains(&end) {
                assert_eq!(moved.kind(), StateKind::Waiting, "{rule:?} {end:?}");
                continue;
            }
            assert_eq!(moved.kind(), StateKind::Cancelled, "{rule:?} {end:?}");
            let why = format!("predecessor {} {}", address(1), end.words());
            assert_eq!(moved.error.as_deref(), Some(&*why));
        }
    }
}

#[test]
fn f_095_only_a_task_that_others_wait_for_owes_its_end_to_them() {
    let sink = Policy {
        sink: Sink::parse("file:done").ok(),
        ..Policy::default()
    };
    let cancel = Event::Cancel {
        running: RunningCancel::Refuse,
        reason: None,
    };
    let owed = |task: &Task, policy: &Policy| {
        let write = WriteId::from_random(77);
        let ended = apply(task, policy, &cancel, write, at(9)).unwrap();
        ended.owed.map_or(Vec::new(), |owed| owed.effects)
    };
    let task = waiting(&[1], TriggerOn::Success, Due::Now);
    assert_eq!(owed(&task, &Policy::default()), []);
    assert_eq!(owed(&task, &sink), [Effect::Deliver]);
    let followed = after(&task, &Event::Follow(EdgeKind::Follower), 2).unwrap();
    assert_eq!(followed.state, task.state);
    assert_eq!(owed(&followed, &Policy::default()), [Effect::Release]);
    assert_eq!(owed(&followed, &sink), [Effect::Release, Effect::Deliver]);
    let ended = after(&followed, &cancel, 3).unwrap();
    assert_eq!(
        after(&ended, &Event::Follow(EdgeKind::Follower), 4),
        Err(Reason::Finished)
    );
}

#[test]
fn the_time_between_two_checks_of_a_waiting_task_doubles() {
    let mut task = waiting(&[1], TriggerOn::Success, Due::Now);
    let mut checks = Vec::new();
    for _ in 0..7 {
        let check_at = task.trigger_at().unwrap();
        let seconds = check_at.millis() / 1_000;
        checks.push(seconds);
        let trigger = Event::Trigger(Trigger {
            seen: StateKind::Waiting,
            seen_at: check_at,
            token: Token::from_random(5),
            jitter: Jitter::default(),
        });
        task = after(&task, &trigger, seconds).unwrap();
    }
    // The task was submitted after one second.
    assert_eq!(checks, [61, 121, 241, 481, 961, 1_861, 2_761]);
}

/// A child of the task with number 1.
fn child() -> Task {
    let mut task = waiting(&[9], TriggerOn::Success, Due::Now);
    let family = Family {
        parent: Some(Predecessor::open(address(1))),
        ..Family::default()
    };
    task.options.get_or_insert_default().family = Some(Box::new(family));
    assert_eq!(check_task(&task), Ok(()));
    task
}

fn parent_ended(end: TaskEnd) -> Event {
    Event::Release(Release {
        kind: EdgeKind::Child,
        from: address(1),
        end,
        token: Some(Token::from_random(9)),
    })
}

/// A task that has run, with children.
fn ran(outcome: Outcome, family: Family) -> Task {
    let id = TaskId::from_bytes([1; 16]);
    let mut new = NewTask::now(id, JobName::parse("import").unwrap(), Bytes::new());
    new.options.get_or_insert_default().family = Some(Box::new(family));
    let (token, write) = (Token::from_random(1), WriteId::from_random(1));
    let task = new.into_task(&Policy::default(), at(1), token, write, true);
    let task = after(&task, &Event::Follow(EdgeKind::Child), 2).unwrap();
    let claim = Event::Claim(Claim {
        token,
        worker: WorkerId::parse("w@1").unwrap(),
        start: true,
    });
    let task = after(&task, &claim, 3).unwrap();
    let finish = Event::Finish {
        token,
        started_at: None,
        outcome,
        jitter: Jitter::default(),
    };
    after(&task, &finish, 4).unwrap()
}

fn effects(task: &Task) -> Vec<Effect> {
    let owed = task.owed.as_deref();
    owed.map_or(Vec::new(), |owed| owed.effects.clone())
}

fn close(task: &Task, failed: Option<u32>, seconds: i64) -> Result<Task, Reason> {
    let seen = task.write;
    after(task, &Event::Close(Close { seen, failed }), seconds)
}

#[test]
fn f_093_a_child_waits_for_its_parents_run_and_then_goes_on() {
    let child = child();
    let on = after(&child, &parent_ended(TaskEnd::Succeeded), 5).unwrap();
    assert_eq!(on.kind(), StateKind::Enqueued);
    let as_follower = after(&child, &release(1, TaskEnd::Succeeded), 5);
    let refused = Err(Reason::NotWaiting);
    assert_eq!(as_follower, refused, "it is notified as a child");
    for end in [
        TaskEnd::Failed,
        TaskEnd::Cancelled,
        TaskEnd::Trashed,
        TaskEnd::Deleted,
    ] {
        let ended = after(&child, &parent_ended(end), 5).unwrap();
        assert_eq!(ended.kind(), StateKind::Cancelled);
        let why = format!("parent {} {}", address(1), end.words());
        assert_eq!(ended.error.as_deref(), Some(&*why));
        assert_eq!(effects(&ended), [Effect::Leave]);
    }
}

#[test]
fn a_10_a_task_with_a_parent_and_a_predecessor_waits_for_both() {
    let mut task = child();
    let options = task.options.as_mut().unwrap();
    options.family.as_mut().unwrap().after = vec![Predecessor::open(address(2))];
    let notified = after(&task, &parent_ended(TaskEnd::Succeeded), 5).unwrap();
    assert_eq!(notified.kind(), StateKind::Waiting);
    let both = after(&notified, &release(2, TaskEnd::Succeeded), 6).unwrap();
    assert_eq!(both.kind(), StateKind::Enqueued);
    let other = after(&task, &release(2, TaskEnd::Succeeded), 5).unwrap();
    assert_eq!(other.kind(), StateKind::Waiting);
}

#[test]
fn f_094_a_parent_is_open_until_its_family_is_closed_in_two_steps() {
    let family = Family {
        parent: Some(Predecessor {
            task: address(7),
            end: Some(TaskEnd::Succeeded),
        }),
        has_followers: true,
        ..Family::default()
    };
    let parent = ran(Outcome::Success { result: None }, family);
    assert_eq!(effects(&parent), [Effect::Children, Effect::Close]);
    assert_eq!((parent.is_open_family(), parent.family_end()), (true, None));
    let unmarked = close(&parent, Some(0), 5);
    assert_eq!(unmarked, Err(Reason::Moved));
    let closing = close(&parent, None, 5).unwrap();
    assert_eq!(closing.children(), Children::Closing);
    // A child that is added in between removes the mark, and the second step is refused.
    let added = after(&closing, &Event::Follow(EdgeKind::Child), 6).unwrap();
    assert_eq!(added.children(), Children::Open);
    let stale = Close {
        seen: closing.write,
        failed: Some(0),
    };
    let late = after(&added, &Event::Close(stale), 7);
    assert_eq!(late, Err(Reason::Moved));
    let closing = close(&added, None, 8).unwrap();
    let closed = close(&closing, Some(2), 9).unwrap();
    let owed = [Effect::Release, Effect::Leave, Effect::Children];
    assert_eq!(effects(&closed), owed);
    assert_eq!(closed.family_end(), Some(TaskEnd::Succeeded));
    assert_eq!(closed.family().unwrap().children_failed, 2);
    let again = after(&closed, &Event::Follow(EdgeKind::Child), 10);
    assert_eq!(again, Err(Reason::Finished));
    assert_eq!(close(&closed, None, 10), Err(Reason::Finished));
}

#[test]
fn a_14_a_failed_child_fails_the_family_only_if_the_parent_asks_for_that() {
    for (fail_on_child, failed, end) in [
        (false, 1, TaskEnd::Succeeded),
        (true, 0, TaskEnd::Succeeded),
        (true, 1, TaskEnd::ChildrenFailed),
    ] {
        let family = Family {
            fail_on_child,
            ..Family::default()
        };
        let parent = ran(Outcome::Success { result: None }, family);
        let closing = close(&parent, None, 5).unwrap();
        let closed = close(&closing, Some(failed), 6).unwrap();
        assert_eq!(closed.family_end(), Some(end));
    }
}

#[test]
fn a_11_the_family_of_a_parent_that_fails_ends_with_it() {
    let error = "no".into();
    let family = Family {
        has_followers: true,
        ..Family::default()
    };
    let parent = ran(Outcome::Fatal { error }, family);
    assert_eq!(effects(&parent), [Effect::Children, Effect::Release]);
    assert_eq!(parent.family_end(), Some(TaskEnd::Failed));
    let late = after(&parent, &Event::Follow(EdgeKind::Child), 9);
    assert_eq!(late, Err(Reason::Finished));
    let again = after(&parent, &Event::Redrive, 9).unwrap();
    assert_eq!(again.children(), Children::Open);
}

#[test]
fn d_12_an_open_family_is_checked_now_and_then_and_only_closing_ends_that() {
    let parent = ran(Outcome::Success { result: None }, Family::default());
    let settle = |task: &Task, effect, failed: bool| {
        Event::Settle(Settle {
            seen: task.write,
            effect,
            failed: failed.then(|| ("open".into(), Jitter::default())),
        })
    };
    let notified = after(&parent, &settle(&parent, Effect::Children, false), 5).unwrap();
    assert_eq!(effects(&notified), [Effect::Close]);
    assert_eq!(notified.trigger_at(), Some(at(65)));
    let done = after(&notified, &settle(&notified, Effect::Close, false), 65);
    assert_eq!(done, Err(Reason::Moved));
    let checked = after(&notified, &settle(&notified, Effect::Close, true), 65).unwrap();
    assert_eq!(checked.trigger_at(), Some(at(65 + 61)));
    assert_eq!(checked.owed.as_ref().unwrap().failures, 0);
}
