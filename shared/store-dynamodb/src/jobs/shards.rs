//! Shards of the due index: a partition takes about a thousand writes a second, so a busy job gets more of them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use dueline_domain::JobName;
use dueline_ports::Create;
use tokio::time::{Duration, Instant};

use super::{JobEntry, JobSnapshot, SHARDS};
use crate::{attr::num, schema, store::DynamoStore};

/// Rate of new tasks of one job, by this process, above which its shards are doubled.
const BUSY_PER_S: f64 = 300.0;
/// How long the rate must last.
const BUSY_FOR: Duration = Duration::from_secs(5);

/// How many tasks of each job this process has stored since the beginning of a window.
#[derive(Debug, Default)]
pub(crate) struct SubmitRates(Mutex<HashMap<JobName, (Instant, u32)>>);

impl SubmitRates {
    /// Counts new tasks. At the end of a window, answers whether the job was busy, and begins a new window.
    fn count(&self, job: &JobName, tasks: u32) -> bool {
        let now = Instant::now();
        let mut rates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = rates.entry(job.clone()).or_insert((now, 0));
        *count = count.saturating_add(tasks);
        let lasted = now.saturating_duration_since(*since);
        if lasted < BUSY_FOR {
            return false;
        }
        // A pause in between makes the window longer and the rate lower.
        let busy = f64::from(*count) > BUSY_PER_S * lasted.as_secs_f64();
        (*since, *count) = (now, 0);
        busy
    }
}

impl DynamoStore {
    /// Counts submits, and doubles the shards of a busy job. All readers scan all shards, so the change takes effect as
    /// soon as the processes have read the definition. No entry is moved.
    pub(crate) async fn count_created(&self, new: &[(usize, Create)], jobs: &JobSnapshot) {
        let mut counts: Vec<(&JobName, u32)> = Vec::new();
        for (_, create) in new {
            match counts.iter_mut().find(|(job, _)| **job == create.task.job) {
                Some((_, count)) => *count += 1,
                None => counts.push((&create.task.job, 1)),
            }
        }
        for (job, count) in counts {
            let Some(entry) = jobs.get(job) else {
                continue;
            };
            if self.submit_rates.count(job, count) && entry.shards < schema::SHARDS_MAX {
                self.double(entry).await;
            }
        }
    }

    /// Doubles the shards of a job. When the write fails, or another process was faster, the next window of a busy job
    /// tries again.
    async fn double(&self, entry: &JobEntry) {
        let shards = (entry.shards * 2).min(schema::SHARDS_MAX);
        let set = vec![(SHARDS.into(), num(i64::from(shards)))];
        match self.change_jobs("shards", entry.changed(set, &[])).await {
            Ok(true) => {
                tracing::info!(job.name = %entry.partitions.job, shards, "shards of a busy job were doubled")
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(job.name = %entry.partitions.job, %error, "failed to double the shards of a busy job")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_is_busy_after_five_seconds_of_more_than_three_hundred_tasks_each() {
        let (rates, mail) = (SubmitRates::default(), JobName::parse("mail").unwrap());
        let busy = async |tasks: u32| {
            let mut busy = 0;
            for _ in 0..100 {
                busy += u32::from(rates.count(&mail, tasks / 10));
                tokio::time::advance(Duration::from_millis(100)).await;
            }
            busy
        };
        assert_eq!(busy(290).await, 0);
        assert!(busy(320).await >= 1);
        // A burst after a quiet hour does not count as busy.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(!rates.count(&mail, 5_000));
    }
}
