//! Fields that most tasks leave empty.

use std::{sync::Arc, time::Duration};

#[cfg(doc)]
use crate::Policy;
use crate::{Backoff, Family, Firing, Timestamp, Unique};

/// Fields that most tasks leave empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskOptions {
    /// A name for people; need not be unique.
    pub name: Option<Arc<str>>,
    /// A JSON object for people, as text.
    pub details: Option<Arc<str>>,
    /// Words to filter by.
    pub tags: Vec<Arc<str>>,
    /// Idempotency key, unique within the job.
    pub key: Option<Arc<str>>,
    /// How long the task holds its key, if not as long as it is kept.
    pub unique: Option<Box<Unique>>,
    /// The client that submitted the task, as the client named itself.
    pub created_by: Option<Arc<str>>,
    /// Media type of the payload.
    pub content_type: Option<Arc<str>>,
    /// W3C trace context of the submit.
    pub trace: Option<Arc<str>>,
    /// Settings that replace those of the job.
    pub overrides: Option<Overrides>,
    /// The run time of the submit, if a user has changed the run time since. Never part of a submit.
    pub original_run_at: Option<Timestamp>,
    /// The firing of a schedule that created the task. Never part of a submit by a client.
    pub firing: Option<Firing>,
    /// What connects the task with other tasks.
    pub family: Option<Box<Family>>,
    /// The key with which the task takes turns with other tasks of a job that has a fair share, such as the name of a
    /// tenant.
    pub fairness_key: Option<Arc<str>>,
    /// Whether the job had a fair share when the task was submitted, see [`Job::admit`](crate::Job::admit). Never part of a
    /// submit.
    pub takes_turns: bool,
}

impl TaskOptions {
    /// Whether two submits with these options are the same submit.
    pub(crate) fn matches_submit(&self, submit: &Self) -> bool {
        // Destructured without `..`, so that a new field does not compile before it is compared or listed here.
        let Self {
            name,
            details,
            tags,
            key,
            unique,
            // Another client may repeat the submit.
            created_by: _,
            // The payload is compared by its bytes; the content type only says how to show them.
            content_type: _,
            // Each request has a trace of its own.
            trace: _,
            overrides,
            // No submit has one.
            original_run_at: _,
            // The id of the task follows from it.
            firing: _,
            family,
            fairness_key,
            // The job decides it.
            takes_turns: _,
        } = submit;
        let none = Family::default();
        let stored_family = self.family.as_deref().unwrap_or(&none);
        self.name == *name
            && self.details == *details
            && self.tags == *tags
            && self.key == *key
            && self.unique == *unique
            && self.fairness_key == *fairness_key
            && stored_family.matches_submit(family.as_deref().unwrap_or(&none))
            // Overrides that change nothing are the same as none.
            && self.overrides.clone().unwrap_or_default() == overrides.clone().unwrap_or_default()
    }
}

/// Settings of a task that replace those of its job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Runs after the first.
    pub retries_max: Option<u32>,
    /// Waits of the standard class.
    pub backoff: Option<Backoff>,
    /// See [`Policy::heartbeat_timeout`].
    pub heartbeat_timeout: Option<Duration>,
    /// See [`Policy::heartbeat_increment`].
    pub heartbeat_increment: Option<Duration>,
    /// See [`Policy::run_timeout`].
    pub run_timeout: Option<Duration>,
}
