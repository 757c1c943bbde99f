//! The checker finds each violation in a history made by hand, and none in a correct one.

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Claim, Event, Jitter, JobName, NewTask, Outcome, Policy, Task, TaskId, Timestamp, Token,
    Trigger, WorkerId, WriteId, apply,
};
use dueline_testkit::{
    Checker, Counters, HistoryEntry, HistoryEvent, RunExpectations, count_events,
};

/// Builds a history like that of a correct system. A test then adds a violation.
struct HistoryBuilder {
    task: Task,
    entries: Vec<HistoryEntry>,
    now: Timestamp,
    writes: u64,
}

fn token(number: u64) -> Token {
    Token::from_random(number)
}

impl HistoryBuilder {
    fn new() -> Self {
        let (id, job) = (TaskId::from_bytes([1; 16]), JobName::parse("mail").unwrap());
        let now = Timestamp::clamped(1_000_000);
        let new = NewTask::now(id, job, Bytes::new());
        let task = new.into_task(
            &Policy::default(),
            now,
            token(1),
            WriteId::from_random(1),
            true,
        );
        let (entries, writes) = (Vec::new(), 1);
        let mut history = Self {
            task,
            entries,
            now,
            writes,
        };
        history.push(HistoryEvent::SubmitSent { id });
        history.store(None);
        history.push(HistoryEvent::SubmitAcked { id });
        history
    }

    fn push(&mut self, event: HistoryEvent) {
        let at = self.now;
        self.entries.push(HistoryEntry { at, event });
    }

    fn store(&mut self, event: Option<&Event>) {
        let (now, task) = (self.now, Box::new(self.task.clone()));
        let verb = event.map(Event::verb);
        self.push(HistoryEvent::Stored { verb, now, task });
    }

    fn apply(&mut self, event: &Event) {
        self.writes += 1;
        let write = WriteId::from_random(self.writes);
        let transition = apply(&self.task, &Policy::default(), event, write, self.now).unwrap();
        self.task.advance(transition);
        self.store(Some(event));
    }

    fn claim(&mut self, number: u64) {
        let worker = WorkerId::parse("w@1").unwrap();
        self.apply(&Event::Claim(Claim {
            token: token(number),
            worker,
            start: true,
        }));
    }

    fn ran(&mut self, number: u64, success: bool) {
        let (host, id, token) = (0, self.task.id, token(number));
        self.push(HistoryEvent::RunStarted {
            host,
            id,
            token,
            attempt: 0,
        });
        self.push(HistoryEvent::RunEnded {
            host,
            id,
            token,
            success,
        });
    }

    fn finish(&mut self, number: u64, outcome: Outcome) {
        self.apply(&Event::Finish {
            token: token(number),
            started_at: None,
            outcome,
            jitter: Jitter::default(),
        });
    }

    fn trigger(&mut self, next: u64) {
        self.apply(&Event::Trigger(Trigger {
            seen: self.task.kind(),
            seen_at: self.task.state.trigger_at().unwrap(),
            token: token(next),
            jitter: Jitter::default(),
        }));
    }

    /// The properties that this history violates.
    fn violations(&self) -> Vec<&'static str> {
        let checker = Checker {
            policies: [(self.task.job.clone(), Policy::default())].into(),
            skew_max: Duration::from_secs(1),
            jobs_that_may_not_end: Default::default(),
        };
        let expected = RunExpectations {
            all_tasks_end: true,
            acked_min: 1,
            successes_after_heal_min: 1,
        };
        let found = checker.check(&self.entries, std::slice::from_ref(&self.task), expected);
        found.into_iter().map(|found| found.property).collect()
    }
}

fn success() -> Outcome {
    Outcome::Success { result: None }
}

fn failure() -> Outcome {
    Outcome::Retriable {
        class: Default::default(),
        delay: None,
        error: "no luck".into(),
    }
}

fn correct() -> HistoryBuilder {
    let mut history = HistoryBuilder::new();
    history.claim(1);
    history.ran(1, false);
    history.finish(1, failure());
    history.now = history.task.state.trigger_at().unwrap();
    history.trigger(2);
    history.claim(2);
    history.ran(2, true);
    history.finish(2, success());
    history
}

#[test]
fn a_correct_history_has_no_violation_and_its_situations_are_counted() {
    let history = correct();
    assert_eq!(history.violations(), [""; 0]);
    let counters = Counters::new();
    count_events(&history.entries, &counters);
    let expected = [
        "failed for now",
        "succeeded after a retry",
        "retry enqueued",
    ];
    assert_eq!(counters.missing(&expected), [""; 0]);
}

#[test]
fn an_acknowledged_task_that_is_not_in_the_store_is_found() {
    let history = correct();
    let found = Checker {
        policies: Default::default(),
        skew_max: Duration::ZERO,
        jobs_that_may_not_end: Default::default(),
    }
    .check(&history.entries, &[], RunExpectations::default());
    assert_eq!(found[0].property, "durable");
}

#[test]
fn a_task_that_was_not_submitted_is_found() {
    let mut history = correct();
    history.entries.remove(0);
    assert!(history.violations().contains(&"no unknown task or token"));
}

#[test]
fn a_success_of_another_attempt_is_found() {
    let mut history = HistoryBuilder::new();
    history.claim(1);
    history.ran(7, true);
    history.finish(1, success());
    assert!(
        history
            .violations()
            .contains(&"a success needs a successful run with its token")
    );
}

#[test]
fn a_second_run_with_one_token_is_found() {
    let mut history = correct();
    history.ran(2, true);
    assert!(history.violations().contains(&"one run per token"));
    assert!(history.violations().contains(&"runs are limited"));
}

#[test]
fn a_message_deleted_before_its_claim_is_found() {
    let mut history = HistoryBuilder::new();
    let (id, token) = (history.task.id, token(1));
    history.push(HistoryEvent::MessageDeleted { id, token });
    history.claim(1);
    history.ran(1, true);
    history.finish(1, success());
    let property = "a message is deleted only after the claim";
    assert_eq!(history.violations(), [property]);
}

#[test]
fn a_retry_that_is_too_early_is_found() {
    let mut history = HistoryBuilder::new();
    history.claim(1);
    history.ran(1, false);
    history.finish(1, failure());
    // A writer whose clock is far ahead.
    let at = history.now;
    history.now = history.task.state.trigger_at().unwrap();
    history.trigger(2);
    history.entries.last_mut().unwrap().at = at;
    let violations = history.violations();
    assert!(violations.contains(&"the backoff is respected"));
    assert!(violations.contains(&"no trigger before its time"));
}

#[test]
fn a_change_of_a_finished_task_is_found() {
    let mut history = correct();
    history.task.tries = 9;
    history.store(Some(&Event::Redrive));
    assert!(history.violations().contains(&"only legal transitions"));
}

#[test]
fn a_task_that_never_ends_and_a_run_without_successes_are_found() {
    let mut history = HistoryBuilder::new();
    assert_eq!(
        history.violations(),
        ["every task ends", "enough work was done"]
    );
    history = correct();
    history.push(HistoryEvent::Note("healed"));
    assert_eq!(history.violations(), ["enough work was done"]);
}

#[test]
fn two_owners_of_one_token_are_found() {
    let mut history = HistoryBuilder::new();
    history.claim(1);
    if let dueline_domain::State::Processing { lease, .. } = &mut history.task.state {
        lease.worker = WorkerId::parse("w@2").unwrap();
    }
    history.store(Some(&Event::Heartbeat { token: token(1) }));
    assert!(history.violations().contains(&"one owner per token"));
}
