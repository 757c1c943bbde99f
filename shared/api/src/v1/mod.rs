//! The JSON of REST `/v1`: one type per body, and the way from and to the domain.
//!
//! Durations are whole milliseconds in fields that end in `_ms`. Points in time are written as RFC 3339 in UTC with
//! milliseconds and read as RFC 3339 or as milliseconds since 1970. What a client sends may hold no unknown field;
//! what a server answers may gain fields, so clients ignore those they do not know. `null` is the same as a field
//! that is left out, except for `payload` and `result`, whose `null` is the JSON value.

mod as_text;
mod assignment;
mod backoff;
mod board;
mod change;
mod claim;
mod drop;
mod family;
mod handler;
mod job;
mod json;
mod payload;
mod predecessor_result;
mod problem;
mod report;
mod schedule;
mod stats;
mod submitted;
mod task_change;
mod task_submit;
mod task_view;
mod time;
mod unique;
mod worker;

pub use assignment::{AssignmentView, WorkList};
pub(crate) use backoff::millis;
pub use backoff::{BackoffSpec, BackoffsSpec, RetriesMax};
pub use board::{ClaimableList, ClaimableView, ExplanationView, RunsView, SchedulingView};
pub use change::{ChangeView, ChangesView};
pub use claim::{ClaimRequest, LeaseView, LifetimeSpec};
pub use drop::{DropRequest, DroppedView};
pub use family::{
    FamilyView, FromRunSpec, FromRunView, MemberView, PathStepView, PredecessorSpec,
    PredecessorView,
};
pub(crate) use handler::within as handler_config;
pub use handler::{ExecConfig, ExecInput, HandlerSpec, HttpBody, HttpConfig};
#[cfg(feature = "grpc")]
pub(crate) use job::sink;
pub use job::{FairShareSpec, JobList, JobSpec, JobView, QuotaSpec, ShownJobView};
pub use json::{parse, parse_items};
pub use predecessor_result::{InputView, PredecessorResultView};
pub use problem::Problem;
pub use report::{Checkpoint, Complete, Extend, Fail, Owned, ReportedView, Trash};
pub use schedule::{
    CountsView, FiringTaskView, FiringView, NextView, PauseRequest, PauseView, RangeView,
    ScheduleList, ScheduleSpec, ScheduleView, TemplateView,
};
#[cfg(feature = "grpc")]
pub(crate) use schedule::{catch_up_policy, template};
pub use stats::StatsView;
pub use submitted::{BatchItem, BatchResult, SubmittedView};
pub use task_change::{CancelRequest, RunningSpec, TaskChange};
#[cfg(feature = "grpc")]
pub(crate) use task_submit::overrides;
pub use task_submit::{PrioritySpec, TaskSubmit};
pub use task_view::{OwedView, RunView, TaskPage, TaskView};
pub use time::Time;
pub use unique::{UniqueSpec, UniqueView};
pub use worker::{AliveView, NextWorkRequest, WorkerList, WorkerRegistration, WorkerView};
