//! The engines start, answer, suffer, and go.

mod clients;
mod dynamodb;
#[cfg(feature = "jvm")]
mod jvm;
mod proxy;
mod shared;
mod sqs;
mod wait;
