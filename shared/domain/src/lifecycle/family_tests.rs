//! Tasks that wait for others: which ends let them go on, and what the end of a task causes.

use bytes::Bytes;

use super::*;
use crate::{
    Due, Family, Jitter, JobName, NewTask, Predecessor, Reason, Sink, StateKind, TaskAddress,
    TaskEnd, TaskId, TaskOptions, TriggerOn, check_task, check_transition,
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
        has_followers: false,
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

fn release(from: u8, end: TaskEnd) -> Event {
    Event::Release(Release {
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
    // The end of a predecessor may be told more than once, and counts once.
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
        (TriggerOn::Failure, &[Failed, Cancelled, Trashed, Dropped]),
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
    let followed = after(&task, &Event::Follow, 2).unwrap();
    assert_eq!(followed.state, task.state);
    assert_eq!(owed(&followed, &Policy::default()), [Effect::Release]);
    assert_eq!(owed(&followed, &sink), [Effect::Release, Effect::Deliver]);
    let ended = after(&followed, &cancel, 3).unwrap();
    assert_eq!(after(&ended, &Event::Follow, 4), Err(Reason::Finished));
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
