//! Which queues are long. Asking a queue may cost a request over the network, so an answer is good for a while.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::JobName;
use tokio::time::Instant;

/// How long a queue counts as long: nothing of it is to be sent again, so nothing is lost by being late.
const LONG_FOR: Duration = Duration::from_secs(5);
/// How long a queue counts as short.
const SHORT_FOR: Duration = Duration::from_secs(1);

/// What queues have said lately.
#[derive(Debug, Default)]
pub(crate) struct Lengths(BTreeMap<JobName, (bool, Instant)>);

impl Lengths {
    /// Forgets what is old.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (_, until)| now < *until);
    }

    /// Whether the queue is long, if it has said so lately.
    pub(crate) fn get(&self, job: &JobName) -> Option<bool> {
        self.0.get(job).map(|(is_long, _)| *is_long)
    }

    /// Takes note of an answer.
    pub(crate) fn note(&mut self, job: JobName, is_long: bool, now: Instant) {
        let good_for = if is_long { LONG_FOR } else { SHORT_FOR };
        self.0.insert(job, (is_long, now + good_for));
    }
}
