//! Compares the tasks in the store with what was submitted and with the run log.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use dueline_tests_end_to_end::{RunLog, RunLogEntry};
use serde_json::Value;

use crate::{millis, number, text};

/// Expectations of a submitted task.
#[derive(Clone, Debug)]
pub struct SubmittedTask {
    /// Whether its runs write to the run log.
    pub is_logged: bool,
    /// Whether its first run fails on purpose.
    pub fails_once: bool,
}

/// Numbers of tasks and of their runs, by how the runs ended.
#[derive(Debug, Default)]
pub struct HistoryTally {
    /// Tasks; each succeeded exactly once.
    pub tasks: usize,
    /// Stored runs.
    pub runs: usize,
    /// Runs whose lease expired.
    pub lost: usize,
    /// Runs that were abandoned.
    pub abandoned: usize,
    /// Runs that their executor stopped because its heartbeats were not answered.
    pub expired: usize,
    /// Runs that failed on purpose.
    pub failed: usize,
    /// Claims that were lost before a run began.
    pub lost_claims: usize,
    /// Runs in the run log.
    pub logged_runs: usize,
    /// Runs in the run log beyond the first of their task, without repeats after a failure on purpose.
    pub repeats: usize,
    /// Runs in the run log that began while an earlier run of their task, of a dead or cut-off executor, continued.
    pub overlaps: usize,
    /// Workers of the lost runs.
    pub blamed: BTreeSet<String>,
}

impl fmt::Display for HistoryTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tasks; {} stored runs: {} lost, {} abandoned, {} stopped without heartbeat answers, {} failed on purpose; \
             {} claims lost; {} runs in the run log, {} of them repeats, {} beside a zombie",
            self.tasks,
            self.runs,
            self.lost,
            self.abandoned,
            self.expired,
            self.failed,
            self.lost_claims,
            self.logged_runs,
            self.repeats,
            self.overlaps,
        )
    }
}

/// Checks the tasks of a job against the accepted submits and the run log, and adds them to the tally.
///
/// # Panics
///
/// When a task is missing, duplicated or was never submitted, when it did not succeed, or when its history does not
/// explain one of its runs.
#[track_caller]
pub fn check_history(
    tally: &mut HistoryTally,
    job: &str,
    accepted: &BTreeMap<String, SubmittedTask>,
    tasks: &[Value],
    log: &RunLog,
) {
    let stored: BTreeSet<_> = tasks.iter().map(|task| text(&task["id"])).collect();
    assert_eq!(stored.len(), tasks.len(), "{job} lists a task twice");
    let lost: Vec<_> = accepted.keys().filter(|id| !stored.contains(*id)).collect();
    assert!(lost.is_empty(), "{job} lost {lost:?}");
    let ghosts: Vec<_> = stored
        .iter()
        .filter(|id| !accepted.contains_key(*id))
        .collect();
    assert!(
        ghosts.is_empty(),
        "{ghosts:?} of {job} were never submitted"
    );
    let (begun, done) = (by_task(log.begun()), by_task(log.done()));
    for task in tasks {
        let id = text(&task["id"]);
        let nothing = Vec::new();
        let begun = begun.get(&id).unwrap_or(&nothing);
        let done = done.get(&id).unwrap_or(&nothing);
        tally.add(task, &accepted[&id], begun, done);
    }
}

fn by_task(entries: Vec<RunLogEntry>) -> BTreeMap<String, Vec<RunLogEntry>> {
    let mut tasks: BTreeMap<String, Vec<RunLogEntry>> = BTreeMap::new();
    for entry in entries {
        tasks.entry(entry.task.clone()).or_default().push(entry);
    }
    tasks
}

impl HistoryTally {
    #[track_caller]
    fn add(
        &mut self,
        task: &Value,
        expected: &SubmittedTask,
        begun: &[RunLogEntry],
        done: &[RunLogEntry],
    ) {
        assert_eq!(task["state"], "succeeded", "{task}");
        assert_eq!(task["runs_dropped"], 0, "{task}");
        let runs = task["runs"].as_array().expect("a history");
        let (last, earlier) = runs.split_last().expect("a run");
        assert_eq!(last["end"], "succeeded", "{task}");
        assert_eq!(last["attempt"], task["attempt"], "{task}");
        let due = millis(&task["run_at"]);
        assert!(
            due <= millis(&runs[0]["started_at"]),
            "before its time: {task}"
        );
        for pair in runs.windows(2) {
            // An abandoned run used no try, so the next run has the same number.
            let attempt_min =
                number(&pair[0]["attempt"]) + u64::from(pair[0]["end"] != "abandoned");
            assert!(
                attempt_min <= number(&pair[1]["attempt"])
                    && millis(&pair[0]["finished_at"]) <= millis(&pair[1]["started_at"]),
                "accepted attempts overlap: {task}"
            );
        }
        let mut failed = 0;
        for run in earlier {
            let (end, info) = (text(&run["end"]), text(&run["info"]));
            match end.as_str() {
                "lost" => {
                    self.lost += 1;
                    self.blamed.insert(text(&run["worker"]));
                }
                "abandoned" => self.abandoned += 1,
                "retriable" if info.contains("heartbeats were not answered") => self.expired += 1,
                "retriable" if expected.fails_once && failed == 0 => failed += 1,
                _ => panic!(
                    "nothing explains the end of attempt {}: {task}",
                    run["attempt"]
                ),
            }
        }
        let lost_claims = usize::try_from(number(&task["losses"])).expect("a small number");
        self.tasks += 1;
        self.runs += runs.len();
        self.failed += failed;
        self.lost_claims += lost_claims;
        if expected.is_logged {
            // The run whose outcome was stored did return. Each run that began is stored as a run, or as a claim that
            // was lost before its start was stored.
            let attempt = number(&task["attempt"]);
            let is_last = |entry: &&RunLogEntry| u64::from(entry.attempt) == attempt;
            assert_eq!(done.iter().filter(is_last).count(), 1, "{done:?} of {task}");
            assert!(
                begun.len() <= runs.len() + lost_claims,
                "ran {} times: {task}",
                begun.len()
            );
            assert!(
                begun.iter().all(|entry| due <= entry.at_ms),
                "before its time: {task}"
            );
            if expected.fails_once {
                assert!(begun.len() >= 2, "did not fail: {task}");
            }
            let on_purpose = usize::from(expected.fails_once);
            self.logged_runs += begun.len();
            self.repeats += begun.len() - 1 - on_purpose;
            self.overlaps += overlaps(begun, done);
        }
    }
}

/// Number of runs that began before an earlier run was done.
fn overlaps(begun: &[RunLogEntry], done: &[RunLogEntry]) -> usize {
    let end_of = |entry: &RunLogEntry| {
        let end = done.iter().find(|done| done.pid == entry.pid);
        end.map(|done| done.at_ms)
    };
    let is_inside = |entry: &&RunLogEntry| {
        let others = begun.iter().filter(|other| other.at_ms < entry.at_ms);
        others.filter_map(end_of).any(|end| end > entry.at_ms)
    };
    begun.iter().filter(is_inside).count()
}
