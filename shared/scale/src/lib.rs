#![doc = include_str!("../README.md")]

mod budget;
mod cells;
mod compare;
mod limits;
mod load;
mod plan;
mod prices;
mod quotas;
mod show;

pub use budget::{
    BATCH_WINDOW_S, HINT_SLACK_S, IDLE_POLL_S, IDLE_SCAN_S, INDEX_ENTRY_BYTES, INLINE_BYTES_MAX,
    PerTask, ScanCost, blob_units, heartbeat_writes, hint_moves, per_task, scan_cost,
};
pub use cells::{CellPlan, cell_of, cells};
pub use compare::{DESIGNS, Design};
pub use limits::{Limit, limits};
pub use load::{InvalidLoad, Load};
pub use plan::{Plan, Traffic, Usd, idle_job_usd, plan};
pub use prices::Prices;
pub use quotas::Quotas;
