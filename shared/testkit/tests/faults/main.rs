//! The faulty store and queue have the faults that they are configured for, and no others.

mod engine;
mod kit;
mod queue;
mod store;
