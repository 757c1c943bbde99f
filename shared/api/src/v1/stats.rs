//! Numbers about a job.

use std::collections::BTreeMap;

use dueline_domain::{JobName, StateKind};
use dueline_ports::JobStats;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Time, as_text};

/// How many tasks a job has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatsView {
    /// The job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// All of them.
    pub total: u64,
    /// By state; all states are listed.
    pub by_state: BTreeMap<String, u64>,
    /// By the state in few words: pending, running, succeeded, failed, cancelled.
    pub by_status: BTreeMap<String, u64>,
    /// The earliest trigger time of a task that no worker owns.
    pub oldest_due_at: Option<Time>,
    /// Whether counting stopped early; the numbers of finished tasks are then too low.
    #[serde(default)]
    pub partial: bool,
    /// How long ago they were counted, in milliseconds. A store where counting is expensive caches the numbers.
    #[serde(default)]
    pub age_ms: u64,
}

impl StatsView {
    /// The numbers of `job`.
    pub fn new(job: JobName, stats: &JobStats) -> Self {
        let mut by_state = BTreeMap::new();
        let mut by_status = BTreeMap::<String, u64>::new();
        for kind in StateKind::ALL {
            let count = stats.by_state.get(&kind).copied().unwrap_or(0);
            by_state.insert(kind.name().to_owned(), count);
            *by_status
                .entry(kind.coarse().name().to_owned())
                .or_default() += count;
        }
        Self {
            job,
            total: stats.by_state.values().sum(),
            by_state,
            by_status,
            oldest_due_at: stats.oldest_due_at.map(Into::into),
            partial: stats.partial,
            age_ms: u64::try_from(stats.age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
