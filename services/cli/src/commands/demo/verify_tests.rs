//! Each test spoils one thing of a demo that went right: a check that cannot fail would prove nothing.

use std::{fs, io::Write as _};

use flate2::{Compression, write::GzEncoder};

use super::*;
use crate::commands::demo::plan::tests::planned;

struct Demo {
    _home: tempfile::TempDir,
    tasks: Vec<DemoTask>,
    outcomes: BTreeMap<TaskId, DemoOutcome>,
    deliveries: Deliveries,
}

/// A demo over 60 files in which everything went right.
fn flawless() -> Demo {
    let (home, tasks) = planned(60);
    let (mut outcomes, mut deliveries) = (BTreeMap::new(), Deliveries::default());
    for task in &tasks {
        let content = fs::read(&task.file.path).unwrap();
        let mut result = None;
        match task.kind {
            Kind::Checksum => {
                let sum = sha256_of(&task.file.path).unwrap().1;
                result = Some(Bytes::from(format!("{sum}\n")));
            }
            Kind::Compress => {
                let output = File::create(task.expected.output.as_ref().unwrap()).unwrap();
                let mut encoder = GzEncoder::new(output, Compression::default());
                encoder.write_all(&content).unwrap();
                encoder.finish().unwrap();
            }
            Kind::Deliver => {
                let refused = u32::from(task.expected.retried);
                let accepted = vec![task.submit.payload.clone()];
                deliveries
                    .by_task
                    .insert(task.submit.id, Calls { refused, accepted });
            }
        }
        let run_at = task.submit.run_at.unwrap_or(Timestamp::clamped(1_000_000));
        let outcome = DemoOutcome {
            id: task.submit.id,
            state: StateKind::Succeeded,
            tries: 1 + u32::from(task.expected.retried),
            run_at,
            started_at: Some(run_at),
            result,
            error: None,
        };
        outcomes.insert(task.submit.id, outcome);
    }
    Demo {
        _home: home,
        tasks,
        outcomes,
        deliveries,
    }
}

impl Demo {
    fn first(&self, kind: Kind, retried: bool) -> &DemoTask {
        let wanted = |task: &&DemoTask| task.kind == kind && task.expected.retried == retried;
        self.tasks.iter().find(wanted).unwrap()
    }

    /// The outcome of the first task of a kind that is not to be retried.
    fn outcome(&mut self, kind: Kind) -> &mut DemoOutcome {
        let id = self.first(kind, false).submit.id;
        self.outcomes.get_mut(&id).unwrap()
    }

    fn calls(&mut self, retried: bool) -> &mut Calls {
        let id = self.first(Kind::Deliver, retried).submit.id;
        self.deliveries.by_task.get_mut(&id).unwrap()
    }

    fn verify(&self) -> Verified {
        verify(&self.tasks, &self.outcomes, &self.deliveries)
    }

    /// Exactly one thing is wrong, and it is told with these words.
    #[track_caller]
    fn has_one_mismatch(&self, words: &str) {
        let verified = self.verify();
        let [mismatch] = verified.mismatches.as_slice() else {
            panic!("not one mismatch: {:?}", verified.mismatches);
        };
        assert!(
            mismatch.what.contains(words),
            "'{words}' is not in: {}",
            mismatch.what
        );
    }
}

#[test]
fn a_flawless_demo_has_no_mismatch() {
    let verified = flawless().verify();
    assert_eq!(verified.mismatches, []);
    assert_eq!(
        (verified.succeeded, verified.failed, verified.retried),
        (60, 0, 6)
    );
}

#[test]
fn a_wrong_checksum_is_a_mismatch() {
    let mut demo = flawless();
    demo.outcome(Kind::Checksum).result = Some(Bytes::from("0".repeat(64)));
    demo.has_one_mismatch("its checksum is");
    demo.outcome(Kind::Checksum).result = None;
    demo.has_one_mismatch("the task said ''");
}

#[test]
fn a_checksum_stored_as_a_json_text_is_understood() {
    let mut demo = flawless();
    let outcome = demo.outcome(Kind::Checksum);
    let text = String::from_utf8(outcome.result.as_deref().unwrap().to_vec()).unwrap();
    outcome.result = Some(serde_json::to_string(&text).unwrap().into());
    assert_eq!(demo.verify().mismatches, []);
}

#[test]
fn an_output_that_is_cut_wrong_longer_or_missing_is_a_mismatch() {
    let demo = flawless();
    let output = demo
        .first(Kind::Compress, false)
        .expected
        .output
        .clone()
        .unwrap();
    let right = fs::read(&output).unwrap();
    let compress = |content: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    fs::write(&output, &right[..right.len() - 9]).unwrap();
    demo.has_one_mismatch("cannot be read");
    fs::write(&output, compress("other")).unwrap();
    demo.has_one_mismatch("something else");
    // A second member whose content follows the right one.
    fs::write(&output, [right.clone(), compress("more")].concat()).unwrap();
    demo.has_one_mismatch("something else");
    fs::write(&output, []).unwrap();
    assert_eq!(demo.verify().mismatches.len(), 1);
    fs::remove_file(&output).unwrap();
    demo.has_one_mismatch("cannot be read");
}

#[test]
fn a_delivery_that_is_missing_doubled_or_wrong_is_a_mismatch() {
    let mut demo = flawless();
    let right = demo.calls(false).clone();
    let mut doubled = right.clone();
    doubled.accepted.push(right.accepted[0].clone());
    *demo.calls(false) = doubled;
    demo.has_one_mismatch("delivered 2 times");
    let mut facts: Facts = serde_json::from_slice(&right.accepted[0]).unwrap();
    facts.sha256 = "0".repeat(64);
    demo.calls(false).accepted = vec![serde_json::to_vec(&facts).unwrap().into()];
    demo.has_one_mismatch("instead of");
    demo.calls(false).accepted = vec![Bytes::from_static(b"{")];
    demo.has_one_mismatch("garbled");
    let id = demo.first(Kind::Deliver, false).submit.id;
    demo.deliveries.by_task.remove(&id);
    demo.has_one_mismatch("nothing was delivered");
}

#[test]
fn a_delivery_under_another_key_is_a_mismatch() {
    let mut demo = flawless();
    let foreign = TaskId::from_bytes([9; 16]);
    demo.deliveries.by_task.insert(foreign, Calls::default());
    demo.has_one_mismatch("delivers nothing");
    demo.deliveries.by_task.remove(&foreign);
    demo.deliveries.unnamed = 1;
    demo.has_one_mismatch("name no task");
}

#[test]
fn a_retry_that_nobody_asked_for_and_one_that_did_not_happen_are_mismatches() {
    let mut demo = flawless();
    demo.outcome(Kind::Compress).tries = 2;
    demo.has_one_mismatch("ran 2 times instead of 1");
    demo.outcome(Kind::Compress).tries = 1;
    let id = demo.first(Kind::Compress, true).submit.id;
    demo.outcomes.get_mut(&id).unwrap().tries = 1;
    demo.has_one_mismatch("ran 1 times instead of 2");
    let mut demo = flawless();
    demo.calls(true).refused = 0;
    demo.has_one_mismatch("refused 0 times instead of 1");
}

#[test]
fn a_task_that_failed_or_is_gone_is_a_mismatch_and_counts_as_failed() {
    let mut demo = flawless();
    let outcome = demo.outcome(Kind::Checksum);
    outcome.state = StateKind::Failed;
    outcome.error = Some("exit status 1".into());
    demo.has_one_mismatch("it is failed: exit status 1");
    assert_eq!((demo.verify().succeeded, demo.verify().failed), (59, 1));
    let id = demo.first(Kind::Checksum, false).submit.id;
    demo.outcomes.remove(&id);
    demo.has_one_mismatch("gone");
}

#[test]
fn a_task_that_nobody_submitted_is_a_mismatch() {
    let mut demo = flawless();
    let doubled = DemoOutcome {
        id: TaskId::from_bytes([9; 16]),
        ..demo.outcome(Kind::Checksum).clone()
    };
    demo.outcomes.insert(doubled.id, doubled);
    demo.has_one_mismatch("nobody submitted it");
}

#[test]
fn a_run_before_its_time_or_at_another_is_a_mismatch() {
    let mut demo = flawless();
    let id = demo
        .tasks
        .iter()
        .find(|task| task.submit.run_at.is_some())
        .unwrap()
        .submit
        .id;
    let outcome = demo.outcomes.get_mut(&id).unwrap();
    let due = outcome.run_at;
    outcome.started_at = Some(Timestamp::clamped(due.millis() - 1));
    demo.has_one_mismatch("1 ms before its time");
    demo.outcomes.get_mut(&id).unwrap().started_at = None;
    demo.has_one_mismatch("nobody knows when it began");
    let outcome = demo.outcomes.get_mut(&id).unwrap();
    outcome.run_at = Timestamp::clamped(due.millis() - 1);
    outcome.started_at = Some(due);
    demo.has_one_mismatch("it was due");
}

#[test]
fn a_file_that_somebody_changed_meanwhile_proves_nothing() {
    let demo = flawless();
    let path = demo.first(Kind::Checksum, false).file.path.clone();
    fs::write(&path, "something longer than before").unwrap();
    let verified = demo.verify();
    assert_eq!(verified.mismatches, []);
    assert_eq!(verified.changed, [path]);
}
