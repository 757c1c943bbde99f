//! The suites that every implementation of a seam runs, one named test per case.

pub mod queue;
pub mod store;
