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
    GATHER_S, HINT_SLACK_S, IDLE_LOOK_S, IDLE_POLL_S, INDEX_ENTRY_BYTES, INLINE_BYTES_MAX, Look,
    PerTask, heartbeat_writes, hint_moves, look, part_units, per_task,
};
pub use cells::{CellPlan, cell_of, cells};
pub use compare::{DESIGNS, Design};
pub use limits::{Limit, limits};
pub use load::{Load, Problem};
pub use plan::{Plan, Traffic, Usd, idle_job_usd, plan};
pub use prices::Prices;
pub use quotas::Quotas;
