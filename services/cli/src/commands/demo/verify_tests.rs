//! Each test breaks one result of a successful demo: a check that cannot fail would prove nothing.

use std::{fs, io::Write as _};

use flate2::{Compression, write::GzEncoder};

use super::*;
use crate::commands::demo::plan::tests::planned;

struct VerifiedDemo {
    _home: tempfile::TempDir,
    tasks: Vec<DemoTask>,
    outcomes: BTreeMap<TaskId, DemoOutcome>,
    deliveries: Deliveries,
}

/// A demo over 60 files in which every task has the expected result.
fn flawless() -> VerifiedDemo {
    let (home, tasks) = planned(60);
    let (mut outcomes, mut deliveries) = (BTreeMap::new(), Deliveries::default());
    for task in &tasks {
        let content = fs::read(&task.file.path).unwrap();
        let mut result = None;
        match task.kind {
            DemoKind::Checksum => {
                let sum = sha256_of(&task.file.path).unwrap().1;
                result = Some(Bytes::from(format!("{sum}\n")));
            }
            DemoKind::Compress => {
                let output = File::create(task.expected.output.as_ref().unwrap()).unwrap();
                let mut encoder = GzEncoder::new(output, Compression::default());
                encoder.write_all(&content).unwrap();
                encoder.finish().unwrap();
            }
            DemoKind::Deliver => {
                let refused = u32::from(task.expected.retried);
                let accepted = vec![task.submit.payload.clone()];
                deliveries
                    .by_task
                    .insert(task.submit.id, TaskDeliveries { refused, accepted });
            }
        }
        let run_at = task.submit.due.time(Timestamp::clamped(1_000_000));
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
    VerifiedDemo {
        _home: home,
        tasks,
        outcomes,
        deliveries,
    }
}

impl VerifiedDemo {
    fn first(&self, kind: DemoKind, retried: bool) -> &DemoTask {
        let matches = |task: &&DemoTask| task.kind == kind && task.expected.retried == retried;
        self.tasks.iter().find(matches).unwrap()
    }

    /// The outcome of the first task of a kind that is not to be retried.
    fn outcome(&mut self, kind: DemoKind) -> &mut DemoOutcome {
        let id = self.first(kind, false).submit.id;
        self.outcomes.get_mut(&id).unwrap()
    }

    fn deliveries(&mut self, retried: bool) -> &mut TaskDeliveries {
        let id = self.first(DemoKind::Deliver, retried).submit.id;
        self.deliveries.by_task.get_mut(&id).unwrap()
    }

    fn verify(&self) -> Verification {
        verify(&self.tasks, &self.outcomes, &self.deliveries)
    }

    /// Asserts that there is exactly one mismatch, and that its description contains `words`.
    #[track_caller]
    fn has_one_mismatch(&self, words: &str) {
        let verification = self.verify();
        let [mismatch] = verification.mismatches.as_slice() else {
            panic!("not one mismatch: {:?}", verification.mismatches);
        };
        assert!(
            mismatch.description.contains(words),
            "'{words}' is not in: {}",
            mismatch.description
        );
    }
}

#[test]
fn a_flawless_demo_has_no_mismatch() {
    let verification = flawless().verify();
    assert_eq!(verification.mismatches, []);
    assert_eq!(
        (
            verification.succeeded,
            verification.failed,
            verification.retried
        ),
        (60, 0, 6)
    );
}

#[test]
fn a_wrong_checksum_is_a_mismatch() {
    let mut demo = flawless();
    demo.outcome(DemoKind::Checksum).result = Some(Bytes::from("0".repeat(64)));
    demo.has_one_mismatch("its checksum is");
    demo.outcome(DemoKind::Checksum).result = None;
    demo.has_one_mismatch("the task returned ''");
}

#[test]
fn a_checksum_stored_as_a_json_string_is_accepted() {
    let mut demo = flawless();
    let outcome = demo.outcome(DemoKind::Checksum);
    let text = String::from_utf8(outcome.result.as_deref().unwrap().to_vec()).unwrap();
    outcome.result = Some(serde_json::to_string(&text).unwrap().into());
    assert_eq!(demo.verify().mismatches, []);
}

#[test]
fn an_output_that_is_truncated_different_longer_or_missing_is_a_mismatch() {
    let demo = flawless();
    let output = demo
        .first(DemoKind::Compress, false)
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
    demo.has_one_mismatch("different content");
    // A second gzip member after the correct one.
    fs::write(&output, [right.clone(), compress("more")].concat()).unwrap();
    demo.has_one_mismatch("different content");
    fs::write(&output, []).unwrap();
    assert_eq!(demo.verify().mismatches.len(), 1);
    fs::remove_file(&output).unwrap();
    demo.has_one_mismatch("cannot be read");
}

#[test]
fn a_delivery_that_is_missing_repeated_or_wrong_is_a_mismatch() {
    let mut demo = flawless();
    let right = demo.deliveries(false).clone();
    let mut repeated = right.clone();
    repeated.accepted.push(right.accepted[0].clone());
    *demo.deliveries(false) = repeated;
    demo.has_one_mismatch("delivered 2 times");
    let mut facts: FileFacts = serde_json::from_slice(&right.accepted[0]).unwrap();
    facts.sha256 = "0".repeat(64);
    demo.deliveries(false).accepted = vec![serde_json::to_vec(&facts).unwrap().into()];
    demo.has_one_mismatch("instead of");
    demo.deliveries(false).accepted = vec![Bytes::from_static(b"{")];
    demo.has_one_mismatch("malformed");
    let id = demo.first(DemoKind::Deliver, false).submit.id;
    demo.deliveries.by_task.remove(&id);
    demo.has_one_mismatch("nothing was delivered");
}

#[test]
fn a_delivery_under_another_key_is_a_mismatch() {
    let mut demo = flawless();
    let foreign = TaskId::from_bytes([9; 16]);
    demo.deliveries
        .by_task
        .insert(foreign, TaskDeliveries::default());
    demo.has_one_mismatch("does not deliver");
    demo.deliveries.by_task.remove(&foreign);
    demo.deliveries.unnamed = 1;
    demo.has_one_mismatch("name no task");
}

#[test]
fn an_unexpected_retry_and_a_missing_retry_are_mismatches() {
    let mut demo = flawless();
    demo.outcome(DemoKind::Compress).tries = 2;
    demo.has_one_mismatch("ran 2 times instead of 1");
    demo.outcome(DemoKind::Compress).tries = 1;
    let id = demo.first(DemoKind::Compress, true).submit.id;
    demo.outcomes.get_mut(&id).unwrap().tries = 1;
    demo.has_one_mismatch("ran 1 times instead of 2");
    let mut demo = flawless();
    demo.deliveries(true).refused = 0;
    demo.has_one_mismatch("refused 0 times instead of 1");
}

#[test]
fn a_task_that_failed_or_no_longer_exists_is_a_mismatch_and_counts_as_failed() {
    let mut demo = flawless();
    let outcome = demo.outcome(DemoKind::Checksum);
    outcome.state = StateKind::Failed;
    outcome.error = Some("exit status 1".into());
    demo.has_one_mismatch("it is failed: exit status 1");
    assert_eq!((demo.verify().succeeded, demo.verify().failed), (59, 1));
    let id = demo.first(DemoKind::Checksum, false).submit.id;
    demo.outcomes.remove(&id);
    demo.has_one_mismatch("does not exist");
}

#[test]
fn a_task_that_the_demo_did_not_submit_is_a_mismatch() {
    let mut demo = flawless();
    let foreign = DemoOutcome {
        id: TaskId::from_bytes([9; 16]),
        ..demo.outcome(DemoKind::Checksum).clone()
    };
    demo.outcomes.insert(foreign.id, foreign);
    demo.has_one_mismatch("not submitted by this demo");
}

#[test]
fn a_run_before_its_due_time_or_with_another_due_time_is_a_mismatch() {
    let mut demo = flawless();
    let id = demo
        .tasks
        .iter()
        .find(|task| task.submit.due.at().is_some())
        .unwrap()
        .submit
        .id;
    let outcome = demo.outcomes.get_mut(&id).unwrap();
    let due = outcome.run_at;
    outcome.started_at = Some(Timestamp::clamped(due.millis() - 1));
    demo.has_one_mismatch("1 ms before its due time");
    demo.outcomes.get_mut(&id).unwrap().started_at = None;
    demo.has_one_mismatch("no start time is stored");
    let outcome = demo.outcomes.get_mut(&id).unwrap();
    outcome.run_at = Timestamp::clamped(due.millis() - 1);
    outcome.started_at = Some(due);
    demo.has_one_mismatch("it was due");
}

#[test]
fn a_file_that_changed_during_the_demo_is_not_a_mismatch() {
    let demo = flawless();
    let path = demo.first(DemoKind::Checksum, false).file.path.clone();
    fs::write(&path, "something longer than before").unwrap();
    let verification = demo.verify();
    assert_eq!(verification.mismatches, []);
    assert_eq!(verification.changed, [path]);
}
