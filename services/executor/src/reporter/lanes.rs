//! The order of the reports of each run.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

use super::batch::QueuedReport;
use crate::run::Run;

/// Lets at most one report of each run be ready or in flight. The others wait here.
#[derive(Default)]
pub(super) struct ReportLanes {
    /// The numbers of the runs with a report that is ready or in flight.
    busy: HashSet<u64, BuildHasherDefault<RunNumberHasher>>,
    /// The waiting reports of busy runs; most runs have none.
    waiting: BTreeMap<u64, VecDeque<QueuedReport>>,
}

impl ReportLanes {
    /// Makes the lane of `run` busy. Returns whether it was free.
    pub(super) fn occupy(&mut self, run: &Run) -> bool {
        self.busy.insert(run.number)
    }

    /// Returns the report if the lane of its run is free, which makes the lane busy. Otherwise the report waits.
    pub(super) fn enter(&mut self, queued: QueuedReport) -> Option<QueuedReport> {
        let run = &queued.report.run;
        if self.occupy(run) {
            return Some(queued);
        }
        let lane = self.waiting.entry(run.number).or_default();
        lane.push_back(queued);
        None
    }

    /// Ends a report of `run`. Returns the report that has waited longest, or else frees the lane.
    pub(super) fn leave(&mut self, run: &Run) -> Option<QueuedReport> {
        let next = self.next_waiting(run.number);
        if next.is_none() {
            self.busy.remove(&run.number);
        }
        next
    }

    /// Removes and returns the waiting reports of `run`.
    pub(super) fn take_waiting(&mut self, run: &Run) -> VecDeque<QueuedReport> {
        self.waiting.remove(&run.number).unwrap_or_default()
    }

    fn next_waiting(&mut self, number: u64) -> Option<QueuedReport> {
        let lane = self.waiting.get_mut(&number)?;
        let next = lane.pop_front();
        if lane.is_empty() {
            self.waiting.remove(&number);
        }
        next
    }
}

/// Hashes run numbers. They are counted by this executor, so no client can choose colliding ones.
#[derive(Default)]
struct RunNumberHasher(u64);

impl Hasher for RunNumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The table takes the bucket from the low bits and a tag from the high ones. Both must differ between
        // neighbouring numbers.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
