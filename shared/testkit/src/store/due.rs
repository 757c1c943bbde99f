//! An index that lags: rows that have moved are still shown, and due rows are not shown yet.

use std::sync::PoisonError;

use dueline_ports::{DuePage, DueTask};

use super::FaultyStore;

/// Rows remembered in order to be shown again.
const SHOWN_MAX: usize = 64;

impl FaultyStore {
    pub(super) fn lag(&self, page: &mut DuePage) {
        let faults = self.faults.due;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<DueTask> = page.tasks.clone();
        page.tasks
            .retain(|_| !self.site.roll("due row late", faults.late));
        for row in shown.iter() {
            if !now.contains(row) && self.site.roll("due row moved", faults.moved) {
                page.tasks.push(row.clone());
            }
        }
        for row in now {
            if !shown.contains(&row) {
                shown.push(row);
            }
        }
        let surplus = shown.len().saturating_sub(SHOWN_MAX);
        shown.drain(..surplus);
    }
}
