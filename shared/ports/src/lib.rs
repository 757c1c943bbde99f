#![doc = include_str!("../README.md")]

mod change_feed;
mod changes;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod cost;
#[cfg(feature = "fakes")]
pub mod fakes;
mod families;
mod lanes;
mod list_order;
mod places;
mod process_kind;
mod queue;
mod quotas;
mod schedules;
mod send_enqueued;
mod share;
mod sinks;
mod store;
mod task_ids;

pub use change_feed::ChangeFeed;
pub use changes::{ChangeCursor, ChangePage, ChangeQuery};
pub use clock::{Clock, Rng};
pub use cost::Cost;
pub use families::{Edge, EdgePage, EdgeQuery, FamilyStore, StoredEdge};
pub use lanes::{Lane, LanePage, LaneQuery};
pub use list_order::ListOrder;
pub use places::{LocalPlaces, PlaceRequest, Places, RunningCounts, TakePlaces};
pub use process_kind::{Metadata, ProcessKind};
pub use queue::{Delivery, Depth, QueueError, Receipt, RefillDemand, TaskQueue};
pub use quotas::{LocalQuotas, QuotaSwap, QuotaWrite};
pub use schedules::{
    DueSchedulesPage, DueSchedulesQuery, PutSchedule, ScheduleQuery, ScheduleStore,
};
pub use send_enqueued::send_enqueued;
pub use share::{SCHEDULE_SHARDS, Share, schedule_shard};
pub use sinks::{SinkFailure, SinkRecord, SinkRefused, Sinks};
pub use store::{
    Applied, Command, Create, Created, DuePage, DueQuery, DueTask, JobStats, JobStore, ListQuery,
    OwnedTask, Page, Pruned, PutJob, Store, StoreError, TaskStore, WorkerRecord, WorkerStore,
};
pub use task_ids::TaskIds;
