//! The limits of a load, and which one it meets first.

use serde::Serialize;

use crate::{
    Load, Quotas,
    budget::{self, IN_FLIGHT_S},
    plan,
};

/// Most slots of a table.
pub(crate) const SLOTS_MAX: u32 = 256;
/// Most due shards of a job.
pub(crate) const SHARDS_MAX: u32 = 64;

/// A quota that bounds how far a load can grow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The resource that it limits.
    pub name: &'static str,
    /// Tasks a second, in the busiest second, at which the limit is met.
    pub at_tasks_per_s: f64,
    /// Part of the limit that the load uses in its busiest second; 1 is all.
    pub used: f64,
    /// How to raise the limit.
    pub fix: &'static str,
}

/// All limits, the first to be met first.
pub fn limits(load: &Load, quotas: &Quotas) -> Vec<Limit> {
    let task = budget::per_task(load);
    let busiest = load.busiest_job();
    let shards = plan::shards(load, quotas);
    let spread = |keys: u32, wru: f64| f64::from(keys) * quotas.key_wru / (wru * busiest);
    let peak = load.peak_tasks_per_s();
    let limit = |name, at_tasks_per_s: f64, fix| Limit {
        name,
        at_tasks_per_s,
        used: peak / at_tasks_per_s,
        fix,
    };
    // Scans take units whether there are tasks or not.
    let scans = budget::scan_cost(&load.at(peak), shards).rru;
    let of_index = (quotas.index_rru / scans) * peak.max(f64::MIN_POSITIVE);
    let mut limits = vec![
        limit(
            "write units of the table",
            quotas.table_wru / task.base_wru,
            "raise the quota, or add a cell",
        ),
        limit(
            "write units of the due index",
            quotas.index_wru / task.index_wru,
            "raise the quota, or add a cell",
        ),
        limit(
            "read units of the table",
            quotas.table_rru / task.rru,
            "raise the quota, or add a cell",
        ),
        limit(
            "read units of the due index",
            of_index,
            "fewer shards, or a longer poll period",
        ),
        limit(
            "slots of the busiest job",
            spread(load.slots, task.base_wru),
            "more slots (chosen when the table is set up)",
        ),
        limit(
            "due shards of the busiest job",
            spread(load.shards.unwrap_or(SHARDS_MAX), task.index_wru),
            "more due shards for that job",
        ),
        limit(
            "messages in flight of the busiest job",
            quotas.queue_in_flight / (IN_FLIGHT_S * busiest),
            "split the job",
        ),
    ];
    limits.sort_by(|a, b| a.at_tasks_per_s.total_cmp(&b.at_tasks_per_s));
    limits
}
