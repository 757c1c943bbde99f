//! Plans one task for each file. The file's number decides the kind, priority and due time of the task.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use dueline_domain::{Due, JobName, NewTask, Priority, TaskOptions, Timestamp};
use dueline_ports::Rng;
use serde::{Deserialize, Serialize};

use super::{DemoFile, DemoKind, verify::sha256_of};

/// A task of the demo and its expected result.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoTask {
    /// The file that the task processes.
    pub file: DemoFile,
    /// What the task does.
    pub kind: DemoKind,
    /// The task to submit. Its id is set here, so that its outcome can be looked up by the id.
    pub submit: NewTask,
    /// The expected result.
    pub expected: ExpectedResult,
}

/// The expected result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedResult {
    /// Whether the first run fails on purpose.
    pub retried: bool,
    /// The file that the task writes.
    pub output: Option<PathBuf>,
}

/// The body of a delivery: size and hash of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFacts {
    /// The path of the file.
    pub file: String,
    /// The size of the file.
    pub bytes: u64,
    /// The SHA-256 of the content in hexadecimal digits.
    pub sha256: String,
}

/// The task of each seventh file is due later.
const SCHEDULED_EVERY: usize = 7;
/// The task of each tenth file fails once on purpose.
const FAILED_EVERY: usize = 10;

/// Directories in the demo's work folder.
const OUTPUTS: &str = "out";
const MARKERS: &str = "marks";

/// Plans one task for each file and creates the directories for the outputs in `work`, which must be empty or absent.
/// A file that cannot be read any more is skipped with a note.
pub fn plan(
    files: Vec<DemoFile>,
    work: &Path,
    now: Timestamp,
    rng: &dyn Rng,
    notes: &mut Vec<String>,
) -> io::Result<Vec<DemoTask>> {
    for directory in [OUTPUTS, MARKERS] {
        fs::create_dir_all(work.join(directory))?;
    }
    let work = work.canonicalize()?;
    let Some(work) = work.to_str().filter(|path| !path.contains('\n')) else {
        let why = "the path of the demo's directory must be UTF-8 without line breaks";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let mut tasks = Vec::with_capacity(files.len());
    for file in files {
        let number = tasks.len();
        match plan_task(number, &file, Path::new(work), now, rng) {
            Ok((kind, submit, expected)) => tasks.push(DemoTask {
                file,
                kind,
                submit,
                expected,
            }),
            Err(error) => notes.push(format!("skipped {:?}: {error}", file.path)),
        }
    }
    Ok(tasks)
}

/// The directory in which commands that fail on purpose create their marker files.
pub(super) fn markers(work: &Path) -> PathBuf {
    work.join(MARKERS)
}

/// Moves every due time by `by`.
pub(super) fn postpone(tasks: &mut [DemoTask], by: Duration) {
    for task in tasks {
        if let Due::At(time) = task.submit.due {
            task.submit.due = Due::At(time.after(by));
        }
    }
}

fn plan_task(
    number: usize,
    file: &DemoFile,
    work: &Path,
    now: Timestamp,
    rng: &dyn Rng,
) -> io::Result<(DemoKind, NewTask, ExpectedResult)> {
    let invalid =
        |error: &dyn ToString| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    // The command opens the file itself. A file without read permission would fail its task, so it is skipped here.
    fs::File::open(&file.path)?;
    let kind = DemoKind::ALL[number % DemoKind::ALL.len()];
    let retried = number % FAILED_EVERY == FAILED_EVERY - 1;
    let marker = match retried {
        true => markers(work).join(number.to_string()).display().to_string(),
        false => String::new(),
    };
    let path = file
        .path
        .to_str()
        .ok_or_else(|| invalid(&"its name is not UTF-8"))?;
    let mut output = None;
    let (payload, content_type) = match kind {
        DemoKind::Checksum => (format!("{marker}\n{path}"), "text/plain"),
        DemoKind::Compress => {
            let out = work.join(OUTPUTS).join(format!("{number}.gz"));
            let payload = format!("{marker}\n{}\n{path}", out.display());
            output = Some(out);
            (payload, "text/plain")
        }
        DemoKind::Deliver => {
            let (bytes, sha256) = sha256_of(&file.path)?;
            let facts = FileFacts {
                file: path.to_owned(),
                bytes,
                sha256,
            };
            (serde_json::to_string(&facts)?, "application/json")
        }
    };
    let job = JobName::parse(kind.job_name()).map_err(|error| invalid(&error))?;
    let (_, level) = Priority::LEVELS[number % Priority::LEVELS.len()];
    let submit = NewTask {
        id_is_given: true,
        due: due_at(number, now),
        priority: Priority::new(i64::from(level)).map_err(|error| invalid(&error))?,
        options: Some(Box::new(TaskOptions {
            name: Some(short_name(&file.path)),
            tags: vec!["demo".into()],
            content_type: Some(content_type.into()),
            ..TaskOptions::default()
        })),
        ..NewTask::now(rng.task_id(now), job, Bytes::from(payload))
    };
    Ok((kind, submit, ExpectedResult { retried, output }))
}

/// The due time: one to three seconds ahead for each seventh file, none for the others, which are due at once.
fn due_at(number: usize, now: Timestamp) -> Due {
    if number % SCHEDULED_EVERY != SCHEDULED_EVERY - 1 {
        return Due::Now;
    }
    let ahead_ms = 1_000 + (number as u64 / SCHEDULED_EVERY as u64 * 250) % 2_001;
    Due::At(now.after(Duration::from_millis(ahead_ms)))
}

/// The file name, cut to the length that a task's name may have.
fn short_name(path: &Path) -> Arc<str> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    name.into()
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicU64, Ordering},
    };

    use super::*;
    use crate::commands::demo::walk;

    /// Counts up instead of drawing random numbers, so that ids differ and a test is repeatable.
    #[derive(Default)]
    pub(in crate::commands::demo) struct CountingRng(AtomicU64);

    impl Rng for CountingRng {
        fn next_u64(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }

    /// A plan over `count` small files in a directory of its own.
    pub(in crate::commands::demo) fn planned(count: usize) -> (tempfile::TempDir, Vec<DemoTask>) {
        let home = tempfile::tempdir().unwrap();
        for number in 0..count {
            fs::write(
                home.path().join(format!("file {number:05}")),
                format!("content {number}"),
            )
            .unwrap();
        }
        let work = home.path().join("work");
        let found = walk(home.path(), &work, count).unwrap();
        let now = Timestamp::clamped(1_000_000);
        let mut notes = Vec::new();
        let tasks = plan(found.files, &work, now, &CountingRng::default(), &mut notes).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        (home, tasks)
    }

    #[test]
    fn kinds_and_priorities_rotate_and_some_tasks_are_scheduled_and_some_fail_once() {
        let (_home, tasks) = planned(210);
        assert_eq!(tasks.len(), 210);
        for kind in DemoKind::ALL {
            let of_kind = || tasks.iter().filter(|task| task.kind == kind);
            assert_eq!(of_kind().count(), 70);
            assert_eq!(of_kind().filter(|task| task.expected.retried).count(), 7);
            assert!(of_kind().any(|task| task.submit.due.at().is_some()));
        }
        let now = Timestamp::clamped(1_000_000);
        let ahead: Vec<_> = tasks
            .iter()
            .filter_map(|task| task.submit.due.at())
            .map(|at| at.since(now))
            .collect();
        assert_eq!(ahead.len(), 30);
        let (least, most) = (Duration::from_secs(1), Duration::from_millis(3_000));
        assert!(
            ahead.iter().all(|wait| (least..=most).contains(wait)),
            "{ahead:?}"
        );
        let priorities: BTreeSet<_> = tasks.iter().map(|task| task.submit.priority).collect();
        assert_eq!(priorities.len(), 5);
        let ids: BTreeSet<_> = tasks.iter().map(|task| task.submit.id).collect();
        assert_eq!(ids.len(), 210);
    }

    #[test]
    fn five_thousand_files_are_planned_with_payloads_within_the_limit() {
        let (_home, tasks) = planned(5_000);
        assert_eq!(tasks.len(), 5_000);
        let payload_bytes_max = dueline_domain::limits().payload_bytes_max;
        assert!(
            tasks
                .iter()
                .all(|task| task.submit.payload.len() < payload_bytes_max)
        );
    }

    #[test]
    fn facts_carry_the_hash_of_the_content() {
        let (_home, tasks) = planned(3);
        let facts: FileFacts = serde_json::from_slice(&tasks[2].submit.payload).unwrap();
        assert_eq!(facts.bytes, 9);
        assert_eq!(facts.sha256, sha256_of(&tasks[2].file.path).unwrap().1);
    }

    #[test]
    fn a_file_that_no_longer_exists_is_skipped_with_a_note() {
        let home = tempfile::tempdir().unwrap();
        let gone = DemoFile {
            path: home.path().join("gone"),
            bytes: 1,
            modified: None,
        };
        let mut notes = Vec::new();
        let work = home.path().join("work");
        let tasks = plan(
            vec![gone],
            &work,
            Timestamp::EPOCH,
            &CountingRng::default(),
            &mut notes,
        );
        assert_eq!(tasks.unwrap(), []);
        assert!(notes[0].contains("gone"), "{notes:?}");
    }
}
