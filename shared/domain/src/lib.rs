#![doc = include_str!("../README.md")]

mod ids;
mod invariants;
mod job;
mod lifecycle;
mod limits;
mod priority;
mod retry;
mod state;
mod task;
mod time;

pub use ids::{IdError, JobName, TaskId, TaskRef, Token, WorkerId, WriteId};
pub use invariants::{Violation, check_step, check_task};
pub use job::{Handler, Job, Policy, PolicyError, Quota, QuotaError};
pub use lifecycle::{
    Claim, Event, Modification, Outcome, OwnerLost, Reason, Rejected, RunningCancel, Transition,
    Trigger, Verb, apply,
};
pub use limits::{Limits, limits};
pub use priority::{Priority, PriorityError, Weight, WeightError};
pub use retry::{Backoff, BackoffError, Jitter, RetryClass, RetryPolicy};
pub use state::{BoardState, CoarseState, Lease, State, StateKind};
pub use task::{Extras, History, NewTask, Overrides, RunEnd, RunRecord, Task};
pub use time::{Timestamp, TimestampError};
