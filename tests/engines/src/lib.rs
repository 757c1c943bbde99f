#![doc = include_str!("../README.md")]

mod dynoxide;
mod engine;
mod http;
mod name;
mod paths;
mod port;
mod process;
mod proxy;
mod runtime;
mod shared;
mod start;

pub use engine::Engine;
pub use name::{ACCESS_KEY, EngineName, REGION, SECRET_KEY, unique};
pub use proxy::Proxy;
pub use shared::{Endpoint, dynamodb, sqs};
