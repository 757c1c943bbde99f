//! What runs themselves say: a line when a command begins, a line when it is done.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{Place, process::signal};

/// A file that runs append to. Commands that outlived their executors are ended when it is dropped.
pub struct RunLog {
    path: PathBuf,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The task.
    pub task: String,
    /// The number that the run was given.
    pub attempt: u32,
    /// The process that ran it.
    pub pid: u32,
    /// When, by the clock of this machine.
    pub at_ms: i64,
    /// The name of the process whose executor ran it.
    pub host: String,
    /// When the task was due.
    pub run_at_ms: i64,
}

impl RunLog {
    /// An empty log in `place`.
    pub fn new(place: &Place) -> Self {
        let path = place.file("runs.log");
        fs::write(&path, "").expect("a file for runs");
        Self { path }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Runs that have begun, in order.
    pub fn begun(&self) -> Vec<Mark> {
        self.marks("S")
    }

    /// Runs that were done, in order.
    pub fn done(&self) -> Vec<Mark> {
        self.marks("D")
    }

    /// Lines of another kind that a command wrote with `mark KIND`.
    pub fn marks(&self, kind: &str) -> Vec<Mark> {
        let lines = self.lines();
        let lines = lines
            .iter()
            .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        lines
            .map(|line| parse(line).unwrap_or_else(|| panic!("a broken line in the log: {line}")))
            .collect()
    }

    /// All lines but a last one that is half written.
    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// How often each task began.
    pub fn begun_by_task(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for mark in self.begun() {
            *counts.entry(mark.task).or_default() += 1;
        }
        counts
    }

    /// How often this task began.
    pub fn begun_of(&self, task: &str) -> Vec<Mark> {
        let mut marks = self.begun();
        marks.retain(|mark| mark.task == task);
        marks
    }
}

fn parse(line: &str) -> Option<Mark> {
    let mut words = line.split(' ');
    let mark = Mark {
        task: words.next()?.to_owned(),
        attempt: words.next()?.parse().ok()?,
        pid: words.next()?.parse().ok()?,
        at_ms: words.next()?.parse().ok()?,
        host: words.next()?.to_owned(),
        run_at_ms: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(mark)
}

impl Drop for RunLog {
    fn drop(&mut self) {
        let lines = self.lines();
        let begun = lines.iter().filter_map(|line| line.strip_prefix("S "));
        for mark in begun.filter_map(parse) {
            // The id may belong to another process by now, which would not know of this task.
            let environment = fs::read(format!("/proc/{}/environ", mark.pid)).unwrap_or_default();
            let mine = format!("DUELINE_TASK_ID={}", mark.task).into_bytes();
            if environment.split(|byte| *byte == 0).any(|it| it == mine) {
                // It may end by itself at this moment.
                let _ = signal("KILL", &format!("-{}", mark.pid));
            }
        }
    }
}

/// A job whose command runs `script` between its two lines. The script may use `mark KIND` for lines of its own.
pub fn exec_job(log: &RunLog, script: &str) -> Value {
    let script = format!(
        r#"set -e
mark() {{
    echo "$1 $DUELINE_TASK_ID $DUELINE_ATTEMPT $$ $(date +%s%3N) ${{TMPDIR##*/}} $DUELINE_RUN_AT" >> "$RUNS"
}}
mark S
{script}
mark D"#
    );
    json!({
        "handler": {
            "kind": "exec",
            "config": {
                "command": ["sh", "-c", script],
                "env": {"RUNS": log.path()},
            },
        },
    })
}
