//! Beyond one table: independent cells.

use dueline_domain::hash::{fnv1a, mix64};
use serde::Serialize;

use crate::{Load, Quotas, limits};

/// A cell is planned to take at most this share of its first limit.
const FILL: f64 = 0.7;

/// How a load is spread over cells. A cell is a table with its own queue prefix and its own services. Cells share
/// nothing, so the failure of a cell affects only its own jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellPlan {
    /// Number of cells.
    pub cells: u32,
    /// Tasks a second of one cell in the busiest second, when jobs spread evenly.
    pub tasks_per_s: f64,
    /// Tasks a second that one cell is planned to take.
    pub tasks_per_s_max: f64,
    /// Name of the limit that bounds a cell.
    pub bound: &'static str,
    /// Whether the busiest job fits into one cell. When it does not, it must become several jobs: a job lives in one
    /// cell.
    pub busiest_job_fits: bool,
}

/// How many cells a load needs. Slots and shards are chosen at setup, so only the limits of a whole table count here;
/// whether the busiest job fits into a cell is judged separately.
pub fn cells(load: &Load, quotas: &Quotas) -> CellPlan {
    let spread = Load {
        slots: limits::SLOTS_MAX,
        shards: None,
        ..load.clone()
    };
    // The share of one job within its cell grows as cells are added, so the limits of one job are left out here.
    let of_table = limits::limits(&spread, quotas)
        .into_iter()
        .filter(|limit| limit.name.contains("units"))
        .min_by(|a, b| a.at_tasks_per_s.total_cmp(&b.at_tasks_per_s));
    let (bound, at) = of_table.map_or(("nothing", f64::INFINITY), |limit| {
        (limit.name, limit.at_tasks_per_s)
    });
    let max = at * FILL;
    let cells = ((load.peak_tasks_per_s() / max).ceil() as u32).max(1);
    let busiest = load.peak_tasks_per_s() * load.busiest_job();
    let alone = Load {
        jobs: 1,
        busiest_job: None,
        ..spread
    };
    let of_job = limits::limits(&alone, quotas)
        .first()
        .map_or(f64::INFINITY, |limit| limit.at_tasks_per_s);
    CellPlan {
        cells,
        tasks_per_s: load.peak_tasks_per_s() / f64::from(cells),
        tasks_per_s_max: max,
        bound,
        busiest_job_fits: busiest <= of_job * FILL,
    }
}

/// The cell of a job among `cells`, by rendezvous hashing: all callers with the same names of cells get the same
/// answer, and a new cell takes over an equal part of the jobs of each other cell. `None` without cells.
pub fn cell_of<'a>(job: &str, cells: &[&'a str]) -> Option<&'a str> {
    cells
        .iter()
        .copied()
        .max_by_key(|cell| (weight(job, cell), *cell))
}

/// FNV-1a over both names, then mixed so that names which differ in one letter are far apart.
fn weight(job: &str, cell: &str) -> u64 {
    let bytes = job.bytes().chain([0]).chain(cell.bytes());
    mix64(fnv1a(bytes))
}
