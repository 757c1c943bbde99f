#![doc = include_str!("../README.md")]

mod effects;
mod family;
pub mod hash;
mod ids;
mod invariants;
mod job;
mod lifecycle;
mod limits;
mod priority;
mod retry;
mod schedule;
mod sink;
mod state;
mod task;
mod task_options;
mod text;
mod time;
mod unique;
mod watch;

pub use effects::{Effect, Effects, Owed};
pub use family::{
    Children, EdgeKind, Family, FromRun, Predecessor, RunFate, TaskAddress, TaskEnd, TriggerOn,
};
pub use ids::{IdError, JobName, ScheduleName, TaskId, TaskRef, Token, WorkerId, WriteId};
pub use invariants::{Violation, check_task, check_transition};
pub use job::{FairShare, Handler, Job, Policy, PolicyError, Quota, QuotaError};
pub use lifecycle::{
    Adopt, Claim, ClaimChosen, ClaimLifetime, Close, Event, Modification, Outcome, Reason, Reclaim,
    Rejected, Release, Replacement, Revive, RunEnded, RunningCancel, Settle, Transition, Trigger,
    Verb, apply,
};
pub use limits::{Limits, limits};
pub use priority::{Priority, PriorityError, Weight, WeightError};
pub use retry::{Backoff, BackoffError, Jitter, RetryClass, RetryPolicy};
pub use schedule::{
    Backfill, CatchUp, CatchUpError, CatchUpPolicy, Firing, FiringCounts, FiringEnd, FiringRecord,
    FiringTask, Overlap, OverlapDecision, QueuedFiring, RuleSpec, Schedule, SchedulePause,
    ScheduleSpec, TaskTemplate, UnfinishedFirings,
};
pub use sink::{Sink, SinkError, SinkTarget};
pub use state::{BoardState, CoarseState, Lease, State, StateKind};
pub use task::{Due, History, NewTask, RunEnd, RunRecord, Task};
pub use task_options::{Overrides, TaskOptions};
pub use text::{bounded_message, truncate_text};
pub use time::{Timestamp, TimestampError};
pub use unique::{HeldUntil, Meeting, OnConflict, Unique};
pub use watch::{ChangeKind, ShownTask, TaskNews};
