//! Rate limits: how many tasks of a job may be enqueued now.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dueline_domain::{Job, JobName, Quota};
use tokio::time::Instant;

/// A token bucket: tokens are added at a rate, up to a capacity.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    rate_per_s: f64,
    capacity: f64,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn full(rate_per_s: f64, capacity: f64, now: Instant) -> Self {
        Self {
            rate_per_s,
            capacity,
            tokens: capacity,
            at: now,
        }
    }

    /// Changes rate and capacity, and keeps the tokens that still fit.
    fn resize(&mut self, rate_per_s: f64, capacity: f64, now: Instant) {
        self.refill(now);
        (self.rate_per_s, self.capacity) = (rate_per_s, capacity);
        self.tokens = self.tokens.min(capacity);
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.rate_per_s).min(self.capacity);
        self.at = self.at.max(now);
    }

    /// The number of whole tokens available now.
    pub(crate) fn available(&mut self, now: Instant) -> usize {
        self.refill(now);
        // Rounding errors leave sums of fractions slightly below the whole number.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the capacity is a small positive number"
        )]
        let whole = (self.tokens + 1e-6).floor() as usize;
        whole
    }

    /// Takes tokens. Taking more than are available puts the bucket into debt.
    pub(crate) fn take(&mut self, count: usize) {
        #[expect(clippy::cast_precision_loss, reason = "batches are small")]
        let count = count as f64;
        self.tokens -= count;
    }

    /// Takes one token, if one is available.
    pub(crate) fn try_take(&mut self, now: Instant) -> bool {
        let is_available = self.available(now) > 0;
        if is_available {
            self.take(1);
        }
        is_available
    }

    /// When enough tokens are available for another scan: a tenth of a second's worth, at least one.
    fn next_scan_at(&self) -> Option<Instant> {
        let enough = (self.rate_per_s / 10.0).max(1.0).min(self.capacity);
        let missing = (enough - self.tokens) / self.rate_per_s;
        let wait = Duration::try_from_secs_f64(missing.max(0.0)).ok()?;
        self.at.checked_add(wait + Duration::from_millis(1))
    }
}

/// The quotas of all jobs that have one.
#[derive(Debug, Default)]
pub(crate) struct JobQuotas(BTreeMap<JobName, JobQuota>);

#[derive(Debug)]
struct JobQuota {
    bucket: TokenBucket,
    /// The number of tasks allowed in the current scan.
    allowed: usize,
    /// Whether the job had at least as many pending tasks when it was last allowed any.
    is_limited: bool,
}

impl JobQuotas {
    /// Updates the quotas from the current jobs. Returns how many pending tasks to read of limited jobs: none of a
    /// paused job, and no more of others than their quota allows.
    pub(crate) fn limits(
        &mut self,
        jobs: &[Arc<Job>],
        batch_max: usize,
        now: Instant,
    ) -> BTreeMap<JobName, usize> {
        let mut quotas = std::mem::take(&mut self.0);
        let mut limits = BTreeMap::new();
        for job in jobs {
            if let Some((rate_per_s, capacity)) = rate_and_capacity(job.quota) {
                let mut quota = quotas.remove(&job.name).unwrap_or_else(|| JobQuota {
                    bucket: TokenBucket::full(rate_per_s, capacity, now),
                    allowed: 0,
                    is_limited: false,
                });
                quota.bucket.resize(rate_per_s, capacity, now);
                quota.allowed = quota.bucket.available(now).min(batch_max);
                limits.insert(job.name.clone(), quota.allowed);
                self.0.insert(job.name.clone(), quota);
            }
            if job.paused {
                limits.insert(job.name.clone(), 0);
            }
        }
        limits
    }

    /// Records how many pending tasks of a job the current scan has read.
    pub(crate) fn record_pending(&mut self, job: &JobName, pending: usize) {
        if let Some(quota) = self.0.get_mut(job).filter(|quota| quota.allowed > 0) {
            quota.is_limited = pending >= quota.allowed;
        }
    }

    /// Takes enqueued tasks of a job from its quota.
    pub(crate) fn spend(&mut self, job: &JobName, count: usize) {
        if let Some(quota) = self.0.get_mut(job) {
            quota.bucket.take(count);
        }
    }

    /// When a job that reached its quota may continue.
    pub(crate) fn next_scan_at(&self) -> Option<Instant> {
        let is_limited = self.0.values().filter(|quota| quota.is_limited);
        is_limited
            .filter_map(|quota| quota.bucket.next_scan_at())
            .min()
    }
}

/// The rate and capacity of a quota; `None` without a limit.
fn rate_and_capacity(quota: Quota) -> Option<(f64, f64)> {
    // A rate that is not a positive number allows nothing, because a mistake must not remove the limit.
    let rate_per_s = quota.rate_per_s?;
    if rate_per_s.is_nan() || rate_per_s <= 0.0 {
        return Some((0.0, 0.0));
    }
    let rate_per_s = rate_per_s.min(1e9);
    let burst = quota.burst.map_or(rate_per_s, f64::from);
    Some((rate_per_s, burst.max(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_starts_full_and_fills_at_its_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(10.0, 20.0, start);
        assert_eq!(bucket.available(start), 20);
        bucket.take(20);
        assert_eq!(
            bucket.next_scan_at(),
            Some(start + Duration::from_millis(101))
        );
        assert_eq!(bucket.available(start + Duration::from_millis(550)), 5);
        assert_eq!(bucket.available(start + Duration::from_secs(60)), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_below_one_per_second_still_allows_single_tasks() {
        let start = Instant::now();
        let (rate, capacity) = rate_and_capacity(Quota {
            rate_per_s: Some(0.1),
            burst: None,
        })
        .unwrap();
        let mut bucket = TokenBucket::full(rate, capacity, start);
        assert!(bucket.try_take(start));
        assert!(!bucket.try_take(start + Duration::from_secs(9)));
        assert!(bucket.try_take(start + Duration::from_secs(10)));
    }

    #[test]
    fn a_rate_that_is_not_positive_allows_nothing() {
        for rate in [0.0, -1.0, f64::NAN] {
            let quota = Quota {
                rate_per_s: Some(rate),
                burst: Some(100),
            };
            assert_eq!(rate_and_capacity(quota), Some((0.0, 0.0)));
        }
        assert_eq!(rate_and_capacity(Quota::default()), None);
    }
}
