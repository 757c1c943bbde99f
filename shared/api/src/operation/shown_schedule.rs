//! A schedule as callers see it.

use std::collections::BTreeMap;

use dueline_domain::{Schedule, TaskId, Timestamp};

/// A schedule, with what follows from its rule and its names.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownSchedule {
    /// The schedule.
    pub schedule: Schedule,
    /// The next firings.
    pub next: Vec<NextFiring>,
    /// The tasks of its active and latest firings, by nominal time.
    pub tasks: BTreeMap<Timestamp, TaskId>,
}

/// A firing to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextFiring {
    /// When.
    pub at: Timestamp,
    /// The same as local time of the rule's zone, in RFC 3339.
    pub local: String,
}
