//! What the store says of tasks and what their runs themselves say, compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use dueline_tests_end_to_end::{Mark, RunLog};
use serde_json::Value;

use crate::{millis, number, text};

/// What was asked for when a task was submitted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whether its runs leave marks.
    pub is_marked: bool,
    /// Whether its first run fails on purpose.
    pub fails_once: bool,
}

/// How tasks came to their ends.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tasks, each of which ended well and once.
    pub tasks: usize,
    /// Runs on record.
    pub runs: usize,
    /// Runs that nobody was heard of any more.
    pub lost: usize,
    /// Runs that were given back.
    pub abandoned: usize,
    /// Runs that their executor ended because its heartbeats were not answered.
    pub expired: usize,
    /// Runs that failed on purpose.
    pub failed: usize,
    /// Claims that came to nothing before a run began.
    pub lost_claims: usize,
    /// Runs that left a mark.
    pub marked_runs: usize,
    /// Those of them that were not the first of their task, without those after a failure on purpose.
    pub repeats: usize,
    /// Marked runs that began while an earlier run of their task, of a dead or cut-off executor, still went on.
    pub overlaps: usize,
    /// Who had the runs that were lost.
    pub blamed: BTreeSet<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tasks; {} runs on record: {} lost, {} given back, {} ended for want of answers, {} failed on purpose; \
             {} claims lost; {} runs left marks, {} of them repeats, {} beside a zombie",
            self.tasks,
            self.runs,
            self.lost,
            self.abandoned,
            self.expired,
            self.failed,
            self.lost_claims,
            self.marked_runs,
            self.repeats,
            self.overlaps,
        )
    }
}

/// Checks the tasks of a job against what was accepted and against the marks of their runs, and adds them up.
///
/// # Panics
///
/// When a task was lost, doubled, invented, ended otherwise than well, or ran for a reason that its history does not
/// tell.
#[track_caller]
pub fn check_history(
    tally: &mut Tally,
    job: &str,
    accepted: &BTreeMap<String, Wanted>,
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
    assert!(ghosts.is_empty(), "nobody submitted {ghosts:?} to {job}");
    let (begun, done) = (by_task(log.begun()), by_task(log.done()));
    for task in tasks {
        let id = text(&task["id"]);
        let nothing = Vec::new();
        let begun = begun.get(&id).unwrap_or(&nothing);
        let done = done.get(&id).unwrap_or(&nothing);
        tally.add(task, &accepted[&id], begun, done);
    }
}

fn by_task(marks: Vec<Mark>) -> BTreeMap<String, Vec<Mark>> {
    let mut tasks: BTreeMap<String, Vec<Mark>> = BTreeMap::new();
    for mark in marks {
        tasks.entry(mark.task.clone()).or_default().push(mark);
    }
    tasks
}

impl Tally {
    #[track_caller]
    fn add(&mut self, task: &Value, wanted: &Wanted, begun: &[Mark], done: &[Mark]) {
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
            // What was given back did not use a try, so the next run has the same number.
            let least = number(&pair[0]["attempt"]) + u64::from(pair[0]["end"] != "abandoned");
            assert!(
                least <= number(&pair[1]["attempt"])
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
                "retriable" if wanted.fails_once && failed == 0 => failed += 1,
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
        if wanted.is_marked {
            // The run that counts did return, and each one that began is on record: as a run, or as a claim that was
            // lost before its start was.
            let attempt = number(&task["attempt"]);
            let is_last = |mark: &&Mark| u64::from(mark.attempt) == attempt;
            assert_eq!(done.iter().filter(is_last).count(), 1, "{done:?} of {task}");
            assert!(
                begun.len() <= runs.len() + lost_claims,
                "ran {} times: {task}",
                begun.len()
            );
            assert!(
                begun.iter().all(|mark| due <= mark.at_ms),
                "before its time: {task}"
            );
            if wanted.fails_once {
                assert!(begun.len() >= 2, "did not fail: {task}");
            }
            let on_purpose = usize::from(wanted.fails_once);
            self.marked_runs += begun.len();
            self.repeats += begun.len() - 1 - on_purpose;
            self.overlaps += overlaps(begun, done);
        }
    }
}

/// Runs that began before one that had begun earlier was done.
fn overlaps(begun: &[Mark], done: &[Mark]) -> usize {
    let end_of = |mark: &Mark| {
        let end = done.iter().find(|done| done.pid == mark.pid);
        end.map(|done| done.at_ms)
    };
    let is_inside = |mark: &&Mark| {
        let others = begun.iter().filter(|other| other.at_ms < mark.at_ms);
        others.filter_map(end_of).any(|end| end > mark.at_ms)
    };
    begun.iter().filter(is_inside).count()
}
