//! The engines start, answer, survive faults, and end.

mod clients;
mod dynamodb;
#[cfg(feature = "jvm")]
mod jvm;
mod proxy;
mod shared;
mod sqs;
mod wait;
