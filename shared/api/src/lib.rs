#![doc = include_str!("../README.md")]

mod any_status;
mod error;
pub mod grpc;
mod services;
pub mod v1;

pub use any_status::AnyStatus;
pub use error::{ApiError, ErrorKind};
pub use services::{
    Action, Alive, Assignment, Dispatch, Frontend, NextWork, Registration, Report, Reported,
    Reservation, ServedJob, Status, Submitted, Work,
};
