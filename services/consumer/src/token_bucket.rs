//! A token bucket of this process.

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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_starts_full_and_fills_at_its_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(10.0, 20.0, start);
        assert_eq!(bucket.available(start), 20);
        bucket.take(20);
        assert_eq!(bucket.available(start + Duration::from_millis(550)), 5);
        assert_eq!(bucket.available(start + Duration::from_secs(60)), 20);
    }
}
