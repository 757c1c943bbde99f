#![doc = include_str!("../README.md")]

mod rest;
mod serve;
mod service;

pub use rest::{Health, MetricsText, RestLimits, RouterDeps, StoreConnection, openapi, router};
pub use serve::serve;
pub use service::{FrontendDeps, FrontendService};
