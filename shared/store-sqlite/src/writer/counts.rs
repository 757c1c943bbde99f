//! How many tasks of a job are in each state. The counts are exact, and a commit writes one small row for each state
//! that changed.

use std::collections::BTreeMap;

use dueline_domain::StateKind;
use rusqlite::Connection;

const STATES: usize = StateKind::ALL.len();

#[derive(Default)]
pub(super) struct StateCounts {
    by_job: BTreeMap<i64, [i64; STATES]>,
    /// Counts that changed since the last commit.
    changed: BTreeMap<i64, [bool; STATES]>,
}

impl StateCounts {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut counts = Self::default();
        let mut statement = db.prepare("SELECT job, state, n FROM job_state")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let state: usize = row.get(1)?;
            if let Some(n) = counts.by_job.entry(row.get(0)?).or_default().get_mut(state) {
                *n = row.get(2)?;
            }
        }
        Ok(counts)
    }

    pub(super) fn add(&mut self, job: i64, kind: StateKind, n: i64) {
        let state = usize::from(kind.code());
        self.by_job.entry(job).or_default()[state] += n;
        self.changed.entry(job).or_default()[state] = true;
    }

    pub(super) fn moved(&mut self, job: i64, from: StateKind, to: StateKind) {
        if from != to {
            self.add(job, from, -1);
            self.add(job, to, 1);
        }
    }

    /// The number of tasks in states of which `is_counted` is true.
    pub(super) fn sum(&self, job: i64, is_counted: impl Fn(StateKind) -> bool) -> u64 {
        let Some(counts) = self.by_job.get(&job) else {
            return 0;
        };
        StateKind::ALL
            .into_iter()
            .filter(|kind| is_counted(*kind))
            .map(|kind| u64::try_from(counts[usize::from(kind.code())]).unwrap_or(0))
            .sum()
    }

    pub(super) fn remove_job(&mut self, db: &Connection, job: i64) -> rusqlite::Result<()> {
        self.by_job.remove(&job);
        self.changed.remove(&job);
        db.prepare_cached("DELETE FROM job_state WHERE job = ?1")?
            .execute([job])?;
        Ok(())
    }

    /// Writes the changed counts, within the transaction that changed them.
    pub(super) fn save(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let mut statement = db.prepare_cached(
            "INSERT OR REPLACE INTO job_state (job, state, n) VALUES (?1, ?2, ?3)",
        )?;
        for (job, changed) in &self.changed {
            let counts = self.by_job.get(job).copied().unwrap_or_default();
            for (state, _) in changed.iter().enumerate().filter(|(_, changed)| **changed) {
                statement.execute((job, state, counts[state]))?;
            }
        }
        self.changed.clear();
        Ok(())
    }
}
