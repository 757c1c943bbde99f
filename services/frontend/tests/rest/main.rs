//! REST `/v1` over a store in memory, without a network.

mod change;
mod description;
mod explain;
mod failures;
mod frequency;
mod grpc;
mod identity;
mod jobs;
mod kit;
mod list;
mod network;
mod submit;
mod times;
mod undelivered;
mod wait;
mod work;
