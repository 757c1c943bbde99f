//! Verifies the results of a demo: every checksum, output and delivery is computed again from the input files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use dueline_domain::{StateKind, Task, TaskId, Timestamp};
use flate2::read::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use super::{Deliveries, DemoKind, DemoTask, FileFacts, FlowResult, TaskDeliveries};
use crate::sanitize::short;

/// The fields of a stored task that are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoOutcome {
    /// The id of the task.
    pub id: TaskId,
    /// The state of the task.
    pub state: StateKind,
    /// Runs that count against the retries.
    pub tries: u32,
    /// The due time.
    pub run_at: Timestamp,
    /// When the first run started.
    pub started_at: Option<Timestamp>,
    /// The result of the successful run.
    pub result: Option<Bytes>,
    /// Why the task failed.
    pub error: Option<String>,
}

impl From<&Task> for DemoOutcome {
    fn from(task: &Task) -> Self {
        let first_run = task
            .history
            .as_ref()
            .and_then(|history| history.runs.first());
        Self {
            id: task.id,
            state: task.kind(),
            tries: task.tries,
            run_at: task.run_at,
            started_at: first_run.map(|run| run.started_at).or(task.started_at),
            result: task.result.clone(),
            error: task.error.as_deref().map(str::to_owned),
        }
    }
}

/// A task whose result is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The id of the task.
    pub id: TaskId,
    /// The file that the task processed.
    pub file: PathBuf,
    /// What differs from the expected result.
    pub description: String,
}

/// The result of the verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Tasks that succeeded, with or without a mismatch.
    pub succeeded: usize,
    /// Tasks that did not succeed.
    pub failed: usize,
    /// Tasks that ran more than once.
    pub retried: usize,
    /// Results that are not the expected ones.
    pub mismatches: Vec<Mismatch>,
    /// Files that changed during the demo. Their tasks cannot be verified and are not counted as mismatches.
    pub changed: Vec<PathBuf>,
    /// What the chain and the schedule have done.
    pub flow: FlowResult,
}

/// Verifies every task. It reads every file and blocks the thread.
pub fn verify(
    tasks: &[DemoTask],
    outcomes: &BTreeMap<TaskId, DemoOutcome>,
    deliveries: &Deliveries,
) -> Verification {
    let mut verification = Verification::default();
    for task in tasks {
        let id = task.submit.id;
        let outcome = outcomes.get(&id);
        match outcome {
            Some(outcome) if outcome.state == StateKind::Succeeded => verification.succeeded += 1,
            _ => verification.failed += 1,
        }
        verification.retried += usize::from(outcome.is_some_and(|outcome| outcome.tries > 1));
        let Err(description) = check(task, outcome, deliveries.by_task.get(&id)) else {
            continue;
        };
        if task.file.is_changed() {
            verification.changed.push(task.file.path.clone());
        } else {
            verification.mismatches.push(Mismatch {
                id,
                file: task.file.path.clone(),
                description,
            });
        }
    }
    let delivering = tasks.iter().filter(|task| task.kind == DemoKind::Deliver);
    let delivering: BTreeSet<TaskId> = delivering.map(|task| task.submit.id).collect();
    for id in deliveries
        .by_task
        .keys()
        .filter(|id| !delivering.contains(id))
    {
        verification.mismatches.push(Mismatch {
            id: *id,
            file: PathBuf::new(),
            description: format!("a delivery names task {id}, which does not deliver"),
        });
    }
    let submitted: BTreeSet<TaskId> = tasks.iter().map(|task| task.submit.id).collect();
    for id in outcomes.keys().filter(|id| !submitted.contains(id)) {
        verification.mismatches.push(Mismatch {
            id: *id,
            file: PathBuf::new(),
            description: format!("task {id} exists, but was not submitted by this demo"),
        });
    }
    if deliveries.unnamed > 0 {
        verification.mismatches.push(Mismatch {
            id: TaskId::from_bytes([0; 16]),
            file: PathBuf::new(),
            description: format!("{} deliveries name no task", deliveries.unnamed),
        });
    }
    verification
}

/// Compares one task with its expected result. The error describes the first difference.
fn check(
    task: &DemoTask,
    outcome: Option<&DemoOutcome>,
    deliveries: Option<&TaskDeliveries>,
) -> Result<(), String> {
    let outcome = outcome.ok_or("the task does not exist any more")?;
    if outcome.state != StateKind::Succeeded {
        let error = outcome.error.as_deref().unwrap_or("no error is stored");
        return Err(format!("it is {}: {error}", outcome.state));
    }
    let tries = 1 + u32::from(task.expected.retried);
    if outcome.tries != tries {
        return Err(format!("it ran {} times instead of {tries}", outcome.tries));
    }
    if let Some(at) = task.submit.due.at()
        && outcome.run_at != at
    {
        return Err(format!("it was due {} instead of {at}", outcome.run_at));
    }
    let started_at = outcome.started_at.ok_or("no start time is stored")?;
    if started_at < outcome.run_at {
        let early_ms = outcome.run_at.since(started_at).as_millis();
        return Err(format!("it started {early_ms} ms before its due time"));
    }
    match task.kind {
        DemoKind::Checksum => check_checksum(task, outcome),
        DemoKind::Compress => check_output(task),
        DemoKind::Deliver => check_delivery(task, deliveries),
    }
}

fn check_checksum(task: &DemoTask, outcome: &DemoOutcome) -> Result<(), String> {
    let (_, expected) = sha256_of(&task.file.path).map_err(|error| error.to_string())?;
    let result = outcome.result.as_deref().unwrap_or_default();
    let actual = output_text(result);
    if actual == expected {
        return Ok(());
    }
    let (expected, actual) = (short(&expected, 17), short(&actual, 17));
    Err(format!(
        "its checksum is {expected}, but the task returned '{actual}'"
    ))
}

/// The output of a command, which is stored either as plain text or as a JSON string.
pub(super) fn output_text(result: &[u8]) -> String {
    let text = serde_json::from_slice(result)
        .unwrap_or_else(|_| String::from_utf8_lossy(result).into_owned());
    text.trim_end().to_owned()
}

fn check_output(task: &DemoTask) -> Result<(), String> {
    let output = task
        .expected
        .output
        .as_deref()
        .ok_or("no output was planned")?;
    let unreadable = |error: io::Error| format!("its output cannot be read: {error}");
    let mut compressed = File::open(output).map_err(unreadable)?;
    let mut written = io::BufReader::new(MultiGzDecoder::new(&mut compressed));
    let mut original = File::open(&task.file.path).map_err(|error| error.to_string())?;
    if is_same(&mut written, &mut original).map_err(unreadable)? {
        return Ok(());
    }
    Err("its output decompresses to different content".into())
}

fn check_delivery(task: &DemoTask, deliveries: Option<&TaskDeliveries>) -> Result<(), String> {
    let deliveries = deliveries.ok_or("nothing was delivered under its id")?;
    let refused = u32::from(task.expected.retried);
    if deliveries.refused != refused {
        return Err(format!(
            "it was refused {} times instead of {refused}",
            deliveries.refused
        ));
    }
    let [body] = deliveries.accepted.as_slice() else {
        let times = deliveries.accepted.len();
        return Err(format!("it was delivered {times} times"));
    };
    let actual: FileFacts = serde_json::from_slice(body)
        .map_err(|error| format!("its delivery is malformed: {error}"))?;
    let (bytes, sha256) = sha256_of(&task.file.path).map_err(|error| error.to_string())?;
    let file = task.file.path.to_string_lossy().into_owned();
    let expected = FileFacts {
        file,
        bytes,
        sha256,
    };
    if actual == expected {
        return Ok(());
    }
    Err(format!("it delivered {actual:?} instead of {expected:?}"))
}

/// Size and SHA-256 of a file.
pub(super) fn sha256_of(path: &Path) -> io::Result<(u64, String)> {
    let (mut file, mut hash) = (File::open(path)?, Sha256::new());
    let (mut buffer, mut bytes) = (vec![0; 64 * 1024], 0);
    loop {
        let len = file.read(&mut buffer)?;
        if len == 0 {
            let digits = hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            return Ok((bytes, digits));
        }
        hash.update(&buffer[..len]);
        bytes += len as u64;
    }
}

/// Compares two streams without holding either in memory.
fn is_same(a: &mut impl io::Read, b: &mut impl io::Read) -> io::Result<bool> {
    let (mut from_a, mut from_b) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let (in_a, in_b) = (fill(a, &mut from_a)?, fill(b, &mut from_b)?);
        if from_a[..in_a] != from_b[..in_b] {
            return Ok(false);
        }
        if in_a == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the stream ends.
fn fill(stream: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
