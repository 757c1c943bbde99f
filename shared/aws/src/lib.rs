#![doc = include_str!("../README.md")]

mod connect;
mod connection;
mod failure;
mod meter;

pub use aws_types::SdkConfig;
pub use connect::{AwsSettings, Service, SetupError, connect, endpoint_or_region};
pub use connection::Connection;
pub use dueline_ports::Cost;
pub use failure::{Class, Failure, classify};
pub use meter::Meter;
