//! The faulty store and queue do what they are told, and nothing without being told.

mod engine;
mod kit;
mod queue;
mod store;
