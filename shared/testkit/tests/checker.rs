//! The checker notices each broken promise in a history made by hand, and none in a whole one.

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Claim, Event, Jitter, JobName, NewTask, Outcome, Policy, Task, TaskId, Timestamp, Token,
    Trigger, WorkerId, WriteId, apply,
};
use dueline_testkit::{Checker, Counters, Entry, Expected, What, sometimes};

/// Writes a history as a well-behaved system would, unless told otherwise.
struct Script {
    task: Task,
    entries: Vec<Entry>,
    now: Timestamp,
    writes: u64,
}

fn token(number: u64) -> Token {
    Token::from_random(number)
}

impl Script {
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
        let mut script = Self {
            task,
            entries,
            now,
            writes,
        };
        script.push(What::SubmitSent { id });
        script.store(None);
        script.push(What::SubmitAcked { id });
        script
    }

    fn push(&mut self, what: What) {
        let at = self.now;
        self.entries.push(Entry { at, what });
    }

    fn store(&mut self, event: Option<&Event>) {
        let (now, task) = (self.now, Box::new(self.task.clone()));
        let verb = event.map(Event::verb);
        self.push(What::Stored { verb, now, task });
    }

    fn apply(&mut self, event: &Event) {
        self.writes += 1;
        let write = WriteId::from_random(self.writes);
        let told = apply(&self.task, &Policy::default(), event, write, self.now).unwrap();
        self.task.advance(told);
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
        self.push(What::RunStarted {
            host,
            id,
            token,
            attempt: 0,
        });
        self.push(What::RunEnded {
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

    /// The rules that this history breaks.
    fn broken(&self) -> Vec<&'static str> {
        let checker = Checker {
            policies: [(self.task.job.clone(), Policy::default())].into(),
            skew_max: Duration::from_secs(1),
            given_up: Default::default(),
        };
        let expected = Expected {
            quiet: true,
            acked_min: 1,
            successes_after_heal_min: 1,
        };
        let found = checker.check(&self.entries, std::slice::from_ref(&self.task), expected);
        found.into_iter().map(|broken| broken.rule).collect()
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

fn whole() -> Script {
    let mut script = Script::new();
    script.claim(1);
    script.ran(1, false);
    script.finish(1, failure());
    script.now = script.task.state.trigger_at().unwrap();
    script.trigger(2);
    script.claim(2);
    script.ran(2, true);
    script.finish(2, success());
    script
}

#[test]
fn a_whole_history_breaks_nothing_and_shows_what_happened() {
    let script = whole();
    assert_eq!(script.broken(), [""; 0]);
    let counters = Counters::new();
    sometimes(&script.entries, &counters);
    let expected = [
        "failed for now",
        "succeeded after a retry",
        "retry enqueued",
    ];
    assert_eq!(counters.missing(&expected), [""; 0]);
}

#[test]
fn an_acknowledged_task_that_is_gone_is_noticed() {
    let script = whole();
    let found = Checker {
        policies: Default::default(),
        skew_max: Duration::ZERO,
        given_up: Default::default(),
    }
    .check(&script.entries, &[], Expected::default());
    assert_eq!(found[0].rule, "durable");
}

#[test]
fn a_task_nobody_submitted_is_noticed() {
    let mut script = whole();
    script.entries.remove(0);
    assert!(script.broken().contains(&"no ghosts"));
}

#[test]
fn a_success_of_another_attempt_is_noticed() {
    let mut script = Script::new();
    script.claim(1);
    script.ran(7, true);
    script.finish(1, success());
    assert!(
        script
            .broken()
            .contains(&"success means that this very attempt ran well")
    );
}

#[test]
fn a_second_run_with_one_token_is_noticed() {
    let mut script = whole();
    script.ran(2, true);
    assert!(script.broken().contains(&"one run per token"));
    assert!(script.broken().contains(&"the run budget"));
}

#[test]
fn a_message_deleted_before_its_claim_is_noticed() {
    let mut script = Script::new();
    let (id, token) = (script.task.id, token(1));
    script.push(What::MessageDeleted { id, token });
    script.claim(1);
    script.ran(1, true);
    script.finish(1, success());
    let rule = "a message is deleted only after the claim";
    assert_eq!(script.broken(), [rule]);
}

#[test]
fn a_retry_that_came_too_early_is_noticed() {
    let mut script = Script::new();
    script.claim(1);
    script.ran(1, false);
    script.finish(1, failure());
    // A writer whose clock is far ahead.
    let at = script.now;
    script.now = script.task.state.trigger_at().unwrap();
    script.trigger(2);
    script.entries.last_mut().unwrap().at = at;
    let broken = script.broken();
    assert!(broken.contains(&"the backoff is honoured"));
    assert!(broken.contains(&"nothing is taken back before its time"));
}

#[test]
fn a_change_after_the_end_is_noticed() {
    let mut script = whole();
    script.task.tries = 9;
    script.store(Some(&Event::Redrive));
    assert!(script.broken().contains(&"only legal steps"));
}

#[test]
fn a_task_that_never_ends_and_an_empty_tail_are_noticed() {
    let mut script = Script::new();
    assert_eq!(script.broken(), ["every task ends", "not vacuous"]);
    script = whole();
    script.push(What::Note("healed"));
    assert_eq!(script.broken(), ["not vacuous"]);
}

#[test]
fn two_owners_of_one_token_are_noticed() {
    let mut script = Script::new();
    script.claim(1);
    if let dueline_domain::State::Processing { lease, .. } = &mut script.task.state {
        lease.worker = WorkerId::parse("w@2").unwrap();
    }
    script.store(Some(&Event::Heartbeat { token: token(1) }));
    assert!(script.broken().contains(&"one owner per token"));
}
