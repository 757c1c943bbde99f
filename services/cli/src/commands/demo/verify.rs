//! Checks a demo by its own computation: nothing that the tasks said about the files is taken on trust.

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

use super::{Calls, Deliveries, DemoTask, Facts, Kind};
use crate::output::short;

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoOutcome {
    /// The task.
    pub id: TaskId,
    /// The state it ended in, or is still in.
    pub state: StateKind,
    /// Runs that used up a try.
    pub tries: u32,
    /// When it was due.
    pub run_at: Timestamp,
    /// When its first run began.
    pub started_at: Option<Timestamp>,
    /// What the successful run returned.
    pub result: Option<Bytes>,
    /// Why it failed.
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

/// A task that did not do what it had to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The task.
    pub id: TaskId,
    /// The file it worked on.
    pub file: PathBuf,
    /// What is wrong.
    pub what: String,
}

/// What the check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Tasks that succeeded, rightly or not.
    pub succeeded: usize,
    /// Tasks that did not.
    pub failed: usize,
    /// Tasks that ran more than once.
    pub retried: usize,
    /// What is wrong.
    pub mismatches: Vec<Mismatch>,
    /// Files that somebody changed meanwhile; what came of these proves nothing either way.
    pub changed: Vec<PathBuf>,
}

/// Checks every task. Reads every file, so call it where blocking is allowed.
pub fn verify(
    tasks: &[DemoTask],
    outcomes: &BTreeMap<TaskId, DemoOutcome>,
    deliveries: &Deliveries,
) -> Verified {
    let mut verified = Verified::default();
    for task in tasks {
        let id = task.submit.id;
        let outcome = outcomes.get(&id);
        match outcome {
            Some(outcome) if outcome.state == StateKind::Succeeded => verified.succeeded += 1,
            _ => verified.failed += 1,
        }
        verified.retried += usize::from(outcome.is_some_and(|outcome| outcome.tries > 1));
        let Err(what) = check(task, outcome, deliveries.by_task.get(&id)) else {
            continue;
        };
        if task.file.is_changed() {
            verified.changed.push(task.file.path.clone());
        } else {
            let file = task.file.path.clone();
            verified.mismatches.push(Mismatch { id, file, what });
        }
    }
    let delivering = tasks.iter().filter(|task| task.kind == Kind::Deliver);
    let delivering: BTreeSet<TaskId> = delivering.map(|task| task.submit.id).collect();
    for id in deliveries
        .by_task
        .keys()
        .filter(|id| !delivering.contains(id))
    {
        let what = format!("a delivery names task {id}, which delivers nothing");
        verified.mismatches.push(Mismatch {
            id: *id,
            file: PathBuf::new(),
            what,
        });
    }
    let submitted: BTreeSet<TaskId> = tasks.iter().map(|task| task.submit.id).collect();
    for id in outcomes.keys().filter(|id| !submitted.contains(id)) {
        verified.mismatches.push(Mismatch {
            id: *id,
            file: PathBuf::new(),
            what: format!("task {id} is there, but nobody submitted it"),
        });
    }
    if deliveries.unnamed > 0 {
        let what = format!("{} deliveries name no task", deliveries.unnamed);
        let id = TaskId::from_bytes([0; 16]);
        verified.mismatches.push(Mismatch {
            id,
            file: PathBuf::new(),
            what,
        });
    }
    verified
}

/// What is wrong with one task.
fn check(
    task: &DemoTask,
    outcome: Option<&DemoOutcome>,
    calls: Option<&Calls>,
) -> Result<(), String> {
    let outcome = outcome.ok_or("the task is gone")?;
    if outcome.state != StateKind::Succeeded {
        let error = outcome.error.as_deref().unwrap_or("no error was told");
        return Err(format!("it is {}: {error}", outcome.state));
    }
    let tries = 1 + u32::from(task.expected.retried);
    if outcome.tries != tries {
        return Err(format!("it ran {} times instead of {tries}", outcome.tries));
    }
    if let Some(at) = task.submit.run_at
        && outcome.run_at != at
    {
        return Err(format!("it was due {} instead of {at}", outcome.run_at));
    }
    let started_at = outcome.started_at.ok_or("nobody knows when it began")?;
    if started_at < outcome.run_at {
        let early_ms = outcome.run_at.since(started_at).as_millis();
        return Err(format!("it began {early_ms} ms before its time"));
    }
    match task.kind {
        Kind::Checksum => check_checksum(task, outcome),
        Kind::Compress => check_output(task),
        Kind::Deliver => check_delivery(task, calls),
    }
}

fn check_checksum(task: &DemoTask, outcome: &DemoOutcome) -> Result<(), String> {
    let (_, wanted) = sha256_of(&task.file.path).map_err(|error| error.to_string())?;
    let result = outcome.result.as_deref().unwrap_or_default();
    let got = said(result);
    if got == wanted {
        return Ok(());
    }
    let (wanted, got) = (short(&wanted, 17), short(&got, 17));
    Err(format!("its checksum is {wanted}, the task said '{got}'"))
}

/// What a command wrote, whether it is stored as it is or as a JSON text.
fn said(result: &[u8]) -> String {
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
    Err("its output decompresses to something else".into())
}

fn check_delivery(task: &DemoTask, calls: Option<&Calls>) -> Result<(), String> {
    let calls = calls.ok_or("nothing was delivered under its id")?;
    let refused = u32::from(task.expected.retried);
    if calls.refused != refused {
        return Err(format!(
            "it was refused {} times instead of {refused}",
            calls.refused
        ));
    }
    let [body] = calls.accepted.as_slice() else {
        return Err(format!("it was delivered {} times", calls.accepted.len()));
    };
    let got: Facts = serde_json::from_slice(body)
        .map_err(|error| format!("its delivery is garbled: {error}"))?;
    let (bytes, sha256) = sha256_of(&task.file.path).map_err(|error| error.to_string())?;
    let file = task.file.path.to_string_lossy().into_owned();
    let wanted = Facts {
        file,
        bytes,
        sha256,
    };
    if got == wanted {
        return Ok(());
    }
    Err(format!("it delivered {got:?} instead of {wanted:?}"))
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
