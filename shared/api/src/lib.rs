#![doc = include_str!("../README.md")]

mod error;
pub mod grpc;
mod services;
pub mod v1;

pub use error::{ApiError, ErrorKind};
pub use services::{
    Action, Alive, Assignment, Dispatch, Frontend, NextWork, Registration, Report, Reported,
    Reservation, ServedJob, Status, Submitted, Work,
};
