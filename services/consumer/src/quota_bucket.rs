//! The token bucket of a job's quota, as one number that all consumers share: when it will be full.

use std::time::Duration;

use dueline_domain::{Quota, Timestamp};

/// How a bucket fills: one token each period, up to a capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BucketRate {
    period_us: f64,
    capacity: f64,
}

impl BucketRate {
    /// The rate of a quota; `None` without a limit. A rate that is not a positive number allows nothing, because a mistake
    /// must not remove the limit.
    pub(crate) fn of(quota: Quota) -> Option<Self> {
        let rate_per_s = quota.rate_per_s?;
        if rate_per_s.is_nan() || rate_per_s <= 0.0 {
            return Some(Self {
                period_us: f64::INFINITY,
                capacity: 0.0,
            });
        }
        let rate_per_s = rate_per_s.min(Quota::RATE_MAX);
        let burst = quota.burst.map_or(rate_per_s, f64::from);
        Some(Self {
            period_us: 1e6 / rate_per_s,
            capacity: burst.max(1.0),
        })
    }

    /// How many tokens `time` adds, at most as many as fit.
    pub(crate) fn tokens_in(self, time: Duration) -> f64 {
        (micros(time) / self.period_us).min(self.capacity)
    }

    fn fill_time(self) -> f64 {
        match self.capacity > 0.0 {
            true => self.capacity * self.period_us,
            false => 0.0,
        }
    }
}

/// When the bucket will be full, in microseconds since the Unix epoch. A bucket whose time has passed is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketLevel(pub(crate) i64);

impl BucketLevel {
    /// A bucket without a token.
    pub(crate) fn empty(rate: BucketRate, now: Timestamp) -> Self {
        Self(at(now, rate.fill_time()))
    }

    /// A full bucket.
    pub(crate) const fn full(now: Timestamp) -> Self {
        Self(now.millis().saturating_mul(1_000))
    }

    /// How many whole tokens there are.
    pub(crate) fn available(self, rate: BucketRate, now: Timestamp) -> usize {
        let missing = self.until_full(rate, now) / rate.period_us;
        // Rounding errors leave sums of fractions slightly below the whole number.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the capacity is a small positive number"
        )]
        let whole = (rate.capacity - missing + 1e-3).floor().max(0.0) as usize;
        if rate.capacity > 0.0 { whole } else { 0 }
    }

    /// The level without `count` of its tokens.
    pub(crate) fn without(self, count: usize, rate: BucketRate, now: Timestamp) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "batches are small")]
        let taken = count as f64 * rate.period_us;
        Self(at(now, self.until_full(rate, now) + taken))
    }

    /// How long it takes until `tokens` are there.
    pub(crate) fn wait_for(self, tokens: f64, rate: BucketRate, now: Timestamp) -> Duration {
        let tokens = tokens.clamp(1.0, rate.capacity.max(1.0));
        let us = self.until_full(rate, now) - (rate.capacity - tokens) * rate.period_us;
        Duration::try_from_secs_f64(us.max(0.0) / 1e6).unwrap_or(Duration::MAX)
    }

    /// Microseconds until the bucket is full; never more than it takes from empty, whatever the clocks of other hosts or an
    /// earlier rate have made of the level.
    fn until_full(self, rate: BucketRate, now: Timestamp) -> f64 {
        let us = self.0.saturating_sub(now.millis().saturating_mul(1_000));
        #[expect(clippy::cast_precision_loss, reason = "bounded by the fill time")]
        let us = us.max(0) as f64;
        us.min(rate.fill_time())
    }
}

#[expect(clippy::cast_precision_loss, reason = "waits are short")]
fn micros(time: Duration) -> f64 {
    time.as_micros() as f64
}

fn at(now: Timestamp, us: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, which is meant")]
    let us = us.round() as i64;
    now.millis().saturating_mul(1_000).saturating_add(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::EPOCH;

    fn rate(rate_per_s: f64, burst: Option<u32>) -> BucketRate {
        let rate_per_s = Some(rate_per_s);
        let quota = Quota {
            rate_per_s,
            burst,
            running_max: None,
        };
        BucketRate::of(quota).unwrap()
    }

    fn after(ms: u64) -> Timestamp {
        START.after(Duration::from_millis(ms))
    }

    #[test]
    fn f_126_a_bucket_fills_at_its_rate_up_to_its_capacity() {
        let rate = rate(10.0, Some(20));
        let full = BucketLevel::full(START);
        assert_eq!(full.available(rate, START), 20);
        let empty = full.without(20, rate, START);
        assert_eq!(empty, BucketLevel::empty(rate, START));
        assert_eq!(empty.available(rate, START), 0);
        assert_eq!(empty.available(rate, after(99)), 0);
        assert_eq!(empty.available(rate, after(100)), 1);
        assert_eq!(empty.available(rate, after(550)), 5);
        assert_eq!(empty.available(rate, after(60_000)), 20);
        assert_eq!(empty.wait_for(1.0, rate, START), Duration::from_millis(100));
        assert_eq!(
            empty.wait_for(2.5, rate, after(100)),
            Duration::from_millis(150)
        );
    }

    #[test]
    fn a_rate_below_one_per_second_still_allows_single_tasks() {
        let rate = rate(0.1, None);
        let empty = BucketLevel::full(START).without(1, rate, START);
        assert_eq!(empty.available(rate, after(9_000)), 0);
        assert_eq!(empty.available(rate, after(10_000)), 1);
    }

    #[test]
    fn a_rate_that_is_not_positive_allows_nothing() {
        for bad in [0.0, -1.0, f64::NAN] {
            let rate = rate(bad, Some(100));
            assert_eq!(
                BucketLevel::full(START).available(rate, after(1_000_000)),
                0
            );
            assert!(
                BucketLevel::full(START).wait_for(1.0, rate, START)
                    > Duration::from_secs(1_000_000)
            );
        }
        assert_eq!(BucketRate::of(Quota::default()), None);
    }

    #[test]
    fn a_level_of_another_rate_or_of_tomorrow_is_at_worst_empty() {
        let rate = rate(10.0, None);
        let tomorrow = BucketLevel::full(after(86_400_000));
        assert_eq!(tomorrow.available(rate, START), 0);
        assert_eq!(
            tomorrow.wait_for(1.0, rate, START),
            Duration::from_millis(100)
        );
        let taken = tomorrow.without(1, rate, after(100));
        assert!(taken.available(rate, after(1_300)) >= 10);
    }
}
