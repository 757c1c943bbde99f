//! Rates: how many tasks may go now.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dueline_domain::{Job, JobName, Quota};
use tokio::time::Instant;

/// Tokens that come at a rate, up to a capacity.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate_per_s: f64,
    capacity: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn full(rate_per_s: f64, capacity: f64, now: Instant) -> Self {
        Self {
            rate_per_s,
            capacity,
            tokens: capacity,
            at: now,
        }
    }

    /// Takes over new numbers, keeping the tokens that still fit.
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

    /// Whole tokens there are now.
    pub(crate) fn available(&mut self, now: Instant) -> usize {
        self.refill(now);
        // Sums of fractions end up a hair below the whole number they stand for.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the capacity is a small positive number"
        )]
        let whole = (self.tokens + 1e-6).floor() as usize;
        whole
    }

    /// Takes tokens; more than there are puts the bucket into debt.
    pub(crate) fn take(&mut self, count: usize) {
        #[expect(clippy::cast_precision_loss, reason = "batches are small")]
        let count = count as f64;
        self.tokens -= count;
    }

    /// Takes one token, if there is one.
    pub(crate) fn try_take(&mut self, now: Instant) -> bool {
        let there = self.available(now) > 0;
        if there {
            self.take(1);
        }
        there
    }

    /// When there are enough tokens to be worth a look: a tenth of a second's worth, at least one.
    fn worth_a_look_at(&self) -> Option<Instant> {
        let wanted = (self.rate_per_s / 10.0).max(1.0).min(self.capacity);
        let missing = (wanted - self.tokens) / self.rate_per_s;
        let wait = Duration::try_from_secs_f64(missing.max(0.0)).ok()?;
        self.at.checked_add(wait + Duration::from_millis(1))
    }
}

/// The rates of all jobs that have one.
#[derive(Debug, Default)]
pub(crate) struct Quotas(BTreeMap<JobName, Gate>);

#[derive(Debug)]
struct Gate {
    bucket: Bucket,
    /// What the job was allowed in this look.
    allowed: usize,
    /// Whether it had at least as much to hand on when it was last allowed anything.
    held_back: bool,
}

impl Quotas {
    /// Takes over the present jobs and answers how many pending tasks are wanted of those that are limited: none
    /// of a paused job, and no more of others than their rate allows.
    pub(crate) fn limits(
        &mut self,
        jobs: &[Arc<Job>],
        batch_max: usize,
        now: Instant,
    ) -> BTreeMap<JobName, usize> {
        let mut gates = std::mem::take(&mut self.0);
        let mut limits = BTreeMap::new();
        for job in jobs {
            if let Some((rate_per_s, capacity)) = numbers(job.quota) {
                let mut gate = gates.remove(&job.name).unwrap_or_else(|| Gate {
                    bucket: Bucket::full(rate_per_s, capacity, now),
                    allowed: 0,
                    held_back: false,
                });
                gate.bucket.resize(rate_per_s, capacity, now);
                gate.allowed = gate.bucket.available(now).min(batch_max);
                limits.insert(job.name.clone(), gate.allowed);
                self.0.insert(job.name.clone(), gate);
            }
            if job.paused {
                limits.insert(job.name.clone(), 0);
            }
        }
        limits
    }

    /// This many pending tasks of a job were seen in this look.
    pub(crate) fn saw(&mut self, job: &JobName, pending: usize) {
        if let Some(gate) = self.0.get_mut(job).filter(|gate| gate.allowed > 0) {
            gate.held_back = pending >= gate.allowed;
        }
    }

    /// A job spent part of its quota.
    pub(crate) fn spend(&mut self, job: &JobName, count: usize) {
        if let Some(gate) = self.0.get_mut(job) {
            gate.bucket.take(count);
        }
    }

    /// When a job that was held back may go on.
    pub(crate) fn look_again_at(&self) -> Option<Instant> {
        let held_back = self.0.values().filter(|gate| gate.held_back);
        held_back
            .filter_map(|gate| gate.bucket.worth_a_look_at())
            .min()
    }
}

/// Rate and capacity of a quota; `None` when it limits nothing.
fn numbers(quota: Quota) -> Option<(f64, f64)> {
    // Whatever is no positive number allows nothing at all: a mistake must not open the gate.
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
        let mut bucket = Bucket::full(10.0, 20.0, start);
        assert_eq!(bucket.available(start), 20);
        bucket.take(20);
        assert_eq!(
            bucket.worth_a_look_at(),
            Some(start + Duration::from_millis(101))
        );
        assert_eq!(bucket.available(start + Duration::from_millis(550)), 5);
        assert_eq!(bucket.available(start + Duration::from_secs(60)), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_below_one_a_second_still_lets_one_through() {
        let start = Instant::now();
        let (rate, capacity) = numbers(Quota {
            rate_per_s: Some(0.1),
            burst: None,
        })
        .unwrap();
        let mut bucket = Bucket::full(rate, capacity, start);
        assert!(bucket.try_take(start));
        assert!(!bucket.try_take(start + Duration::from_secs(9)));
        assert!(bucket.try_take(start + Duration::from_secs(10)));
    }

    #[test]
    fn a_rate_that_is_no_number_opens_no_gate() {
        for rate in [0.0, -1.0, f64::NAN] {
            let quota = Quota {
                rate_per_s: Some(rate),
                burst: Some(100),
            };
            assert_eq!(numbers(quota), Some((0.0, 0.0)));
        }
        assert_eq!(numbers(Quota::default()), None);
    }
}
