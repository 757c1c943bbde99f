//! Decides what is done to each file. One file, one task; everything else follows from the file's number.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use dueline_domain::{Extras, JobName, NewTask, Priority, Timestamp};
use dueline_ports::Rng;
use serde::{Deserialize, Serialize};

use super::{DemoFile, Kind, verify::sha256_of};

/// A task of the demo and what must come of it.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoTask {
    /// The file it works on.
    pub file: DemoFile,
    /// What it does.
    pub kind: Kind,
    /// What is submitted; its id is given, so that the outcome is found again.
    pub submit: NewTask,
    /// What must come of it.
    pub expected: Expected,
}

/// What must come of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Whether its first run fails on purpose.
    pub retried: bool,
    /// The file that it writes.
    pub output: Option<PathBuf>,
}

/// What is delivered about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Its path.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its content in hexadecimal digits.
    pub sha256: String,
}

/// Each seventh file's task is due later.
const SCHEDULED_EVERY: usize = 7;
/// Each tenth file's task fails once on purpose.
const FAILED_EVERY: usize = 10;

/// Directories below the demo's own one.
const OUTPUTS: &str = "out";
const MARKS: &str = "marks";

/// Plans one task for each file and makes the directories they write to below `work`, which must be empty or absent.
/// Files that cannot be read any more are left out with a note.
pub fn plan(
    files: Vec<DemoFile>,
    work: &Path,
    now: Timestamp,
    rng: &dyn Rng,
    notes: &mut Vec<String>,
) -> io::Result<Vec<DemoTask>> {
    for directory in [OUTPUTS, MARKS] {
        fs::create_dir_all(work.join(directory))?;
    }
    let work = work.canonicalize()?;
    let Some(work) = work.to_str().filter(|path| !path.contains('\n')) else {
        let why = "the demo's directory must have a name in UTF-8 without line breaks";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let mut tasks = Vec::with_capacity(files.len());
    for file in files {
        let number = tasks.len();
        match task(number, &file, Path::new(work), now, rng) {
            Ok((kind, submit, expected)) => tasks.push(DemoTask {
                file,
                kind,
                submit,
                expected,
            }),
            Err(error) => notes.push(format!("left out {:?}: {error}", file.path)),
        }
    }
    Ok(tasks)
}

/// Where the commands of tasks that fail on purpose leave their markers.
pub(super) fn marks(work: &Path) -> PathBuf {
    work.join(MARKS)
}

/// Puts every due time off.
pub(super) fn postpone(tasks: &mut [DemoTask], by: Duration) {
    for task in tasks {
        task.submit.run_at = task.submit.run_at.map(|at| at.after(by));
    }
}

fn task(
    number: usize,
    file: &DemoFile,
    work: &Path,
    now: Timestamp,
    rng: &dyn Rng,
) -> io::Result<(Kind, NewTask, Expected)> {
    let invalid =
        |error: &dyn ToString| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    // Commands open the file themselves; one that nobody may read would fail for a reason that is not the demo's.
    fs::File::open(&file.path)?;
    let kind = Kind::ALL[number % Kind::ALL.len()];
    let retried = number % FAILED_EVERY == FAILED_EVERY - 1;
    let mark = match retried {
        true => marks(work).join(number.to_string()).display().to_string(),
        false => String::new(),
    };
    let path = file
        .path
        .to_str()
        .ok_or_else(|| invalid(&"its name is not UTF-8"))?;
    let mut output = None;
    let (payload, content_type) = match kind {
        Kind::Checksum => (format!("{mark}\n{path}"), "text/plain"),
        Kind::Compress => {
            let out = work.join(OUTPUTS).join(format!("{number}.gz"));
            let payload = format!("{mark}\n{}\n{path}", out.display());
            output = Some(out);
            (payload, "text/plain")
        }
        Kind::Deliver => {
            let (bytes, sha256) = sha256_of(&file.path)?;
            let facts = Facts {
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
        run_at: due_at(number, now),
        priority: Priority::new(i64::from(level)).map_err(|error| invalid(&error))?,
        extras: Some(Box::new(Extras {
            name: Some(short_name(&file.path)),
            tags: vec!["demo".into()],
            content_type: Some(content_type.into()),
            created_by: Some("demo".into()),
            ..Extras::default()
        })),
        ..NewTask::now(rng.task_id(now), job, Bytes::from(payload))
    };
    Ok((kind, submit, Expected { retried, output }))
}

/// One to three seconds ahead for each seventh file, at once for the others.
fn due_at(number: usize, now: Timestamp) -> Option<Timestamp> {
    if number % SCHEDULED_EVERY != SCHEDULED_EVERY - 1 {
        return None;
    }
    let ahead_ms = 1_000 + (number as u64 / SCHEDULED_EVERY as u64 * 250) % 2_001;
    Some(now.after(Duration::from_millis(ahead_ms)))
}

/// The end of the path, cut to what a task's name may hold.
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

    /// Counts, so that ids differ and a test repeats itself.
    #[derive(Default)]
    pub(in crate::commands::demo) struct Counter(AtomicU64);

    impl Rng for Counter {
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
        let tasks = plan(found.files, &work, now, &Counter::default(), &mut notes).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        (home, tasks)
    }

    #[test]
    fn kinds_and_priorities_rotate_and_some_are_scheduled_and_some_fail_once() {
        let (_home, tasks) = planned(210);
        assert_eq!(tasks.len(), 210);
        for kind in Kind::ALL {
            let of_kind = || tasks.iter().filter(|task| task.kind == kind);
            assert_eq!(of_kind().count(), 70);
            assert_eq!(of_kind().filter(|task| task.expected.retried).count(), 7);
            assert!(of_kind().any(|task| task.submit.run_at.is_some()));
        }
        let now = Timestamp::clamped(1_000_000);
        let ahead: Vec<_> = tasks
            .iter()
            .filter_map(|task| task.submit.run_at)
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
        let facts: Facts = serde_json::from_slice(&tasks[2].submit.payload).unwrap();
        assert_eq!(facts.bytes, 9);
        assert_eq!(facts.sha256, sha256_of(&tasks[2].file.path).unwrap().1);
    }

    #[test]
    fn a_file_that_went_away_is_left_out_with_a_note() {
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
            &Counter::default(),
            &mut notes,
        );
        assert_eq!(tasks.unwrap(), []);
        assert!(notes[0].contains("gone"), "{notes:?}");
    }
}
