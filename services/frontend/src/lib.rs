#![doc = include_str!("../README.md")]

#[cfg(feature = "network")]
mod edge;
#[cfg(feature = "network")]
mod rest;
mod service;

#[cfg(feature = "network")]
pub use edge::serve;
#[cfg(feature = "network")]
pub use rest::{Health, MetricsText, RestLimits, RouterDeps, StoreConnection, openapi, router};
pub use service::{FrontendDeps, FrontendService};
