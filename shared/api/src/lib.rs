#![doc = include_str!("../README.md")]

mod error;
mod services;

pub use error::{ApiError, ErrorKind};
pub use services::{
    Action, Alive, Assignment, Frontend, NextWork, Registration, Report, Reported, ServedJob,
    Status, Submitted, Work,
};
