//! Backoffs of jobs whose writes the store refuses at the moment, so that other jobs are not delayed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dueline_domain::JobName;
use tokio::time::Instant;

/// Longest backoff.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The backoff after this many failures: the poll period, doubled with each failure, up to [`BACKOFF_MAX`].
pub(crate) fn backoff(poll_period: Duration, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1));
    poll_period
        .saturating_mul(doubled.unwrap_or(u32::MAX))
        .min(BACKOFF_MAX)
}

/// The jobs that are skipped, each until a deadline.
#[derive(Debug, Default)]
pub(crate) struct JobBackoffs(BTreeMap<JobName, JobBackoff>);

#[derive(Debug)]
struct JobBackoff {
    until: Instant,
    failures: u32,
}

impl JobBackoffs {
    /// Whether the scan skips this job now.
    pub(crate) fn is_backing_off(&self, job: &JobName, now: Instant) -> bool {
        self.0
            .get(job)
            .is_some_and(|job_backoff| now < job_backoff.until)
    }

    /// Records the jobs of which a scan moved tasks, and those of which it could move none.
    pub(crate) fn record_scan(
        &mut self,
        moved: &BTreeSet<JobName>,
        failed: &BTreeSet<JobName>,
        poll_period: Duration,
        now: Instant,
    ) {
        self.0.retain(|job, _| !moved.contains(job));
        for job in failed.difference(moved) {
            let job_backoff = self.0.entry(job.clone()).or_insert(JobBackoff {
                until: now,
                failures: 0,
            });
            job_backoff.failures += 1;
            job_backoff.until = now + backoff(poll_period, job_backoff.failures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_is_skipped_for_longer_each_time_until_one_of_its_tasks_moves() {
        let (mut backoffs, second) = (JobBackoffs::default(), Duration::from_secs(1));
        let (a, b) = (job("a"), job("b"));
        let (none, both) = (BTreeSet::new(), BTreeSet::from([a.clone(), b.clone()]));
        let mut now = Instant::now();
        let mut lengths_s = Vec::new();
        for _ in 0..5 {
            backoffs.record_scan(&none, &both, second, now);
            let started_at = now;
            while backoffs.is_backing_off(&a, now) {
                now += second;
            }
            lengths_s.push((now - started_at).as_secs());
        }
        assert_eq!(lengths_s, [1, 2, 4, 5, 5]);
        // Part of a batch was written: that causes no backoff.
        backoffs.record_scan(&BTreeSet::from([a.clone()]), &both, second, now);
        assert!(!backoffs.is_backing_off(&a, now) && backoffs.is_backing_off(&b, now));
        backoffs.record_scan(&none, &both, second, now);
        assert!(
            !backoffs.is_backing_off(&a, now + second),
            "the backoff starts again"
        );
        assert!(backoffs.is_backing_off(&b, now + second));
    }

    fn job(name: &str) -> JobName {
        JobName::parse(name).expect("a name")
    }
}
