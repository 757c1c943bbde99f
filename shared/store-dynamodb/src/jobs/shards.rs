//! Shards of the due index: one partition takes about a thousand writes a second, so a busy job gets more of them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use dueline_domain::JobName;
use dueline_ports::Create;
use tokio::time::{Duration, Instant};

use super::{Entry, Known, SHARDS};
use crate::{attr::num, schema, store::Inner};

/// New tasks of one job per second, by this process, from which on its shards are doubled.
const BUSY_PER_S: f64 = 300.0;
/// How long that must last.
const BUSY_FOR: Duration = Duration::from_secs(5);

/// How many tasks this process stores, by job.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<JobName, (Instant, u32)>>);

impl Rates {
    /// Counts new tasks; answers whether the job has been busy for a while, and then counts anew.
    fn count(&self, job: &JobName, tasks: u32) -> bool {
        let now = Instant::now();
        let mut rates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = rates.entry(job.clone()).or_insert((now, 0));
        *count = count.saturating_add(tasks);
        let lasted = now.saturating_duration_since(*since);
        if lasted < BUSY_FOR {
            return false;
        }
        // A pause in between makes the window longer, and the rate small.
        let busy = f64::from(*count) > BUSY_PER_S * lasted.as_secs_f64();
        (*since, *count) = (now, 0);
        busy
    }
}

impl Inner {
    /// Counts submits, and doubles the shards of a job that has been busy. Readers look at all shards there are, so
    /// that it takes effect as soon as everybody knows; nothing is moved.
    pub(crate) async fn count_created(&self, new: &[(usize, Create)], jobs: &Known) {
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
            if self.rates.count(job, count) && entry.shards < schema::SHARDS_MAX {
                self.double(entry).await;
            }
        }
    }

    /// May fail, or find that somebody was faster: it is tried again while the job stays busy.
    async fn double(&self, entry: &Entry) {
        let shards = (entry.shards * 2).min(schema::SHARDS_MAX);
        let set = vec![(SHARDS.into(), num(i64::from(shards)))];
        match self.change_jobs("shards", entry.changed(set, &[])).await {
            Ok(true) => {
                tracing::info!(job.name = %entry.home.job, shards, "the due index of a busy job has more shards")
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(job.name = %entry.home.job, %error, "shards were not doubled")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_is_busy_after_five_seconds_of_more_than_three_hundred_tasks_each() {
        let (rates, mail) = (Rates::default(), JobName::parse("mail").unwrap());
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
        // A burst after a quiet hour is no busy time.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(!rates.count(&mail, 5_000));
    }
}
