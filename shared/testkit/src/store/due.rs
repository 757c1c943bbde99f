//! Pages of due tasks as an index gives them: rows that have moved are still shown, due rows are not shown yet, and
//! a page may end anywhere.

use std::sync::PoisonError;

use dueline_ports::{DuePage, DueTask, Share};

use super::FaultyStore;

/// Rows remembered in order to be shown again.
const SHOWN_MAX: usize = 64;
/// Most empty pages in a row that one roll leads to.
const EMPTY_MAX: u64 = 4;

/// What this host has been shown.
#[derive(Default)]
pub(super) struct Shown {
    rows: Vec<DueTask>,
    /// Pages that are still to come back empty.
    empty: u64,
    /// How much it last asked for, from 0 to 1.
    share: Option<f64>,
}

impl FaultyStore {
    pub(super) fn lag(&self, page: &mut DuePage) {
        let faults = self.faults.due;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<DueTask> = page.tasks.clone();
        page.tasks
            .retain(|_| !self.site.roll("due row late", faults.late));
        for row in &shown.rows {
            if !now.contains(row) && self.site.roll("due row moved", faults.moved) {
                page.tasks.push(row.clone());
            }
        }
        for row in now {
            if !shown.rows.contains(&row) {
                shown.rows.push(row);
            }
        }
        let surplus = shown.rows.len().saturating_sub(SHOWN_MAX);
        shown.rows.drain(..surplus);
    }

    /// Leaves out what is in a hot partition, and ends the page early or at once.
    pub(super) fn cut(&self, page: &mut DuePage) {
        let rows = page.tasks.len();
        let mut jobs: Vec<_> = page.tasks.iter().map(|task| &task.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let is_hot = |job: &&_| self.is_hot(self.engine.heat_of_job(job));
        let hot: Vec<_> = jobs.into_iter().filter(is_hot).cloned().collect();
        page.tasks.retain(|task| !hot.contains(&task.job));

        let faults = self.faults.due;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.empty == 0 && !page.tasks.is_empty() && self.happens("", faults.empty) {
            shown.empty = 1 + self.site.rng.below(EMPTY_MAX);
        }
        // Once the faults are over no page is empty without a reason.
        if shown.empty > 0 && self.site.faults.is_on() {
            shown.empty -= 1;
            if !page.tasks.is_empty() {
                self.site.counters.count("due page empty");
            }
            page.tasks.clear();
        }
        drop(shown);
        if page.tasks.len() > 1 && self.happens("due page short", faults.short) {
            let kept = self.site.rng.below(page.tasks.len() as u64);
            page.tasks.truncate(usize::try_from(kept).unwrap_or(0));
        }
        page.more |= page.tasks.len() < rows;
    }

    /// Counts how the share of this host changes.
    pub(super) fn note_share(&self, share: Option<&Share>) {
        let now = share.map_or(1.0, Share::fraction);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.share.replace(now);
        drop(shown);
        let name = match before {
            Some(before) if now < before => "share given to others",
            Some(before) if now > before => "share taken over",
            _ if share.is_some() => "share read",
            _ => return,
        };
        self.site.counters.count(name);
    }
}
