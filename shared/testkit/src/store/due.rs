//! Pages of due tasks from an index that lags: moved rows are still returned, due rows are missing, and a page may end
//! anywhere.

use std::sync::{MutexGuard, PoisonError};

use dueline_ports::{DuePage, DueTask, Share};

use super::FaultyStore;

/// Most rows that are remembered, to be returned again after they moved.
const REMEMBERED_ROWS_MAX: usize = 64;
/// Most consecutive empty pages per fault.
const EMPTY_MAX: u64 = 4;

/// The earlier reads of this host.
#[derive(Default)]
pub(super) struct EarlierDueReads {
    rows: Vec<DueTask>,
    /// Number of following pages that are returned empty.
    empty: u64,
    /// Fraction of the index in the latest query, from 0 to 1.
    share: Option<f64>,
}

impl FaultyStore {
    /// Removes rows that are due and adds earlier ones that have moved.
    pub(super) fn lag(&self, page: &mut DuePage) {
        let faults = self.faults.due;
        let mut earlier = self.earlier_due_reads();
        let now: Vec<DueTask> = page.tasks.clone();
        page.tasks
            .retain(|_| !self.injector.roll("due row late", faults.late));
        for row in &earlier.rows {
            if !now.contains(row) && self.injector.roll("due row moved", faults.moved) {
                page.tasks.push(row.clone());
            }
        }
        for row in now {
            if !earlier.rows.contains(&row) {
                earlier.rows.push(row);
            }
        }
        let surplus = earlier.rows.len().saturating_sub(REMEMBERED_ROWS_MAX);
        earlier.rows.drain(..surplus);
    }

    /// Removes the rows of hot partitions, and returns some pages short or empty.
    pub(super) fn truncate(&self, page: &mut DuePage) {
        let rows = page.tasks.len();
        let mut jobs: Vec<_> = page.tasks.iter().map(|task| &task.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let is_hot = |job: &&_| self.is_hot(self.engine.heat_of_job(job));
        let hot: Vec<_> = jobs.into_iter().filter(is_hot).cloned().collect();
        page.tasks.retain(|task| !hot.contains(&task.job));

        let faults = self.faults.due;
        let mut earlier = self.earlier_due_reads();
        if earlier.empty == 0 && !page.tasks.is_empty() && self.happens("", faults.empty) {
            earlier.empty = 1 + self.injector.rng.below(EMPTY_MAX);
        }
        // While faults are off, a page is empty only if no task is due.
        if earlier.empty > 0 && self.injector.faults.is_on() {
            earlier.empty -= 1;
            if !page.tasks.is_empty() {
                self.injector.counters.count("due page empty");
            }
            page.tasks.clear();
        }
        drop(earlier);
        if page.tasks.len() > 1 && self.happens("due page short", faults.short) {
            let kept = self.injector.rng.below(page.tasks.len() as u64);
            page.tasks.truncate(usize::try_from(kept).unwrap_or(0));
        }
        page.more |= page.tasks.len() < rows;
    }

    /// Counts how the share of this host changes.
    pub(super) fn count_share(&self, share: Option<&Share>) {
        let now = share.map_or(1.0, Share::fraction);
        let before = self.earlier_due_reads().share.replace(now);
        let name = match before {
            Some(before) if now < before => "share reduced",
            Some(before) if now > before => "share extended",
            _ if share.is_some() => "share read",
            _ => return,
        };
        self.injector.counters.count(name);
    }

    fn earlier_due_reads(&self) -> MutexGuard<'_, EarlierDueReads> {
        let earlier = &self.earlier_due_reads;
        earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
