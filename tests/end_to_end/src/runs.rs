//! The run log: the commands of test jobs append a line when they begin and a line when they are done.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{TestFolder, process::signal};

/// A file to which runs append. When it is dropped, commands that outlived their executors are killed.
pub struct RunLog {
    path: PathBuf,
}

/// One line of the run log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLogEntry {
    /// The id of the task.
    pub task: String,
    /// The number of the run.
    pub attempt: u32,
    /// The process id of the command.
    pub pid: u32,
    /// When the line was written, by the clock of this machine.
    pub at_ms: i64,
    /// The name of the process whose executor ran the command.
    pub host: String,
    /// When the task was due.
    pub run_at_ms: i64,
}

impl RunLog {
    /// An empty log in `folder`.
    pub fn new(folder: &TestFolder) -> Self {
        let path = folder.file("runs.log");
        fs::write(&path, "").expect("a file for runs");
        Self { path }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Runs that began, in order.
    pub fn begun(&self) -> Vec<RunLogEntry> {
        self.entries("S")
    }

    /// Runs that were done, in order.
    pub fn done(&self) -> Vec<RunLogEntry> {
        self.entries("D")
    }

    /// Lines of another kind that a command wrote with `record KIND`.
    pub fn entries(&self, kind: &str) -> Vec<RunLogEntry> {
        let lines = self.lines();
        let lines = lines
            .iter()
            .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        lines
            .map(|line| parse(line).unwrap_or_else(|| panic!("a broken line in the log: {line}")))
            .collect()
    }

    /// All complete lines; an incomplete last line is left out.
    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Number of runs that began, by task.
    pub fn begun_by_task(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for entry in self.begun() {
            *counts.entry(entry.task).or_default() += 1;
        }
        counts
    }

    /// Runs of this task that began, in order.
    pub fn begun_of(&self, task: &str) -> Vec<RunLogEntry> {
        let mut entries = self.begun();
        entries.retain(|entry| entry.task == task);
        entries
    }
}

fn parse(line: &str) -> Option<RunLogEntry> {
    let mut words = line.split(' ');
    let entry = RunLogEntry {
        task: words.next()?.to_owned(),
        attempt: words.next()?.parse().ok()?,
        pid: words.next()?.parse().ok()?,
        at_ms: words.next()?.parse().ok()?,
        host: words.next()?.to_owned(),
        run_at_ms: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(entry)
}

impl Drop for RunLog {
    fn drop(&mut self) {
        let lines = self.lines();
        let begun = lines.iter().filter_map(|line| line.strip_prefix("S "));
        for entry in begun.filter_map(parse) {
            // The process id may have been reused by a process that does not run this task.
            let environment = fs::read(format!("/proc/{}/environ", entry.pid)).unwrap_or_default();
            let variable = format!("DUELINE_TASK_ID={}", entry.task).into_bytes();
            if environment
                .split(|byte| *byte == 0)
                .any(|it| it == variable)
            {
                // The command may have exited in the meantime.
                let _ = signal("KILL", &format!("-{}", entry.pid));
            }
        }
    }
}

/// A job whose command runs `script` between its two lines. The script may write other lines with `record KIND`.
pub fn exec_job(log: &RunLog, script: &str) -> Value {
    let script = format!(
        r#"set -e
record() {{
    echo "$1 $DUELINE_TASK_ID $DUELINE_ATTEMPT $$ $(date +%s%3N) ${{TMPDIR##*/}} $DUELINE_RUN_AT" >> "$RUNS"
}}
record S
{script}
record D"#
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
