#![doc = include_str!("../README.md")]

mod call;
pub mod check;
mod error;
mod error_reason;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod operation;
mod predecessor_result;
mod services;
mod status_failover;
mod task_iter;
#[cfg(feature = "grpc")]
mod undelivered;
pub mod v1;
mod watch;
mod wire_enum;

pub use call::Call;
pub use error::{ApiError, ErrorKind};
pub use error_reason::ErrorReason;
pub use operation::{Callable, Frontend, Operation};
pub use predecessor_result::PredecessorResult;
pub use services::{
    Action, Assignment, Controller, Dispatch, PollRequest, Ready, Registered, Registration, Report,
    ReportAck, Reservation, ServedJob, StatusController,
};
pub use status_failover::StatusControllerFailover;
pub use task_iter::TaskIter;
#[cfg(feature = "grpc")]
pub use undelivered::Undelivered;
pub use watch::Watch;
