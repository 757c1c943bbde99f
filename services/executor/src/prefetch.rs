//! How much weight to claim ahead of free slots: as much as the handlers finish while the next poll is in flight.
//!
//! A claim that waits for a slot keeps the task from other workers, and begins before more urgent tasks that are claimed
//! later. So slow handlers prefetch nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Prefetched claims cover this much time: longer than a poll takes, and far shorter than the claim timeout.
const HORIZON: Duration = Duration::from_millis(20);

/// Prefetched claims begin within this time by the mean run time. It is longer than [`HORIZON`], because busy slots finish
/// about as much in that time as the rate says, and must not be starved by the smaller of two estimates.
const HORIZON_BY_RUN_TIME: Duration = Duration::from_millis(50);

/// Shortest window of a measurement.
const WINDOW_MIN: Duration = Duration::from_millis(1);

/// From this window on, a measurement replaces the earlier rate; over shorter windows the two are averaged.
const WINDOW_FULL: Duration = Duration::from_millis(100);

/// Share of the latest run in the mean of the run times.
const LATEST_RUN: f64 = 1.0 / 16.0;

/// Measures how much weight finishes per second and how long runs take, and derives how much to prefetch.
#[derive(Debug)]
pub(crate) struct PrefetchEstimate {
    since: Instant,
    done: u64,
    per_s: f64,
    concurrency: u32,
    /// Mean time that a run occupies its slot, in seconds; `None` before the first one.
    run_s: Option<f64>,
    target_max: u32,
    target: u32,
}

impl PrefetchEstimate {
    pub(crate) fn new(now: Instant, concurrency: u32, target_max: u32) -> Self {
        Self {
            since: now,
            done: 0,
            per_s: 0.0,
            concurrency,
            run_s: None,
            target_max,
            target: 0,
        }
    }

    /// Counts the weight of a finished run, and the time that it occupied its slot.
    pub(crate) fn finished(&mut self, weight: u32, took: Duration) {
        self.done += u64::from(weight);
        let took_s = took.as_secs_f64();
        let mean_s = self.run_s.unwrap_or(took_s);
        self.run_s = Some(mean_s + (took_s - mean_s) * LATEST_RUN);
    }

    /// Updates the rate and the target.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate; the cast saturates"
    )]
    pub(crate) fn measure(&mut self, now: Instant) {
        let window = now.saturating_duration_since(self.since);
        if window < WINDOW_MIN {
            return;
        }
        let per_s = self.done as f64 / window.as_secs_f64();
        let old = if window < WINDOW_FULL { 0.5 } else { 0.0 };
        self.per_s = self.per_s.mul_add(old, per_s * (1.0 - old));
        (self.since, self.done) = (now, 0);
        // Runs that end together look like a high rate for a moment, but the slots free no more than they can hold.
        let horizon_s = HORIZON.as_secs_f64();
        let begun_s = HORIZON_BY_RUN_TIME.as_secs_f64();
        let by_run_time = f64::from(self.concurrency) * begun_s / self.run_s.unwrap_or(0.0);
        let target = (self.per_s * horizon_s).min(by_run_time);
        self.target = (target as u32).min(self.target_max);
    }

    /// Weight to claim ahead of free slots.
    pub(crate) const fn target(&self) -> u32 {
        self.target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        estimate: &mut PrefetchEstimate,
        now: &mut Instant,
        steps: u32,
        step: Duration,
        done: u32,
        took: Duration,
    ) {
        for _ in 0..steps {
            *now += step;
            estimate.finished(done, took);
            estimate.measure(*now);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fast_handlers_prefetch_hundreds_of_tasks_and_slow_ones_none() {
        let mut now = Instant::now();
        let mut estimate = PrefetchEstimate::new(now, 10, 1000);
        assert_eq!(estimate.target(), 0);
        let (ms, fast) = (Duration::from_millis, Duration::from_micros(50));
        run(&mut estimate, &mut now, 20, ms(2), 50, fast);
        let target = estimate.target();
        assert!((450..=500).contains(&target), "{target}");
        run(&mut estimate, &mut now, 20, ms(2), 5_000, fast);
        assert_eq!(estimate.target(), 1000);
        run(&mut estimate, &mut now, 3, ms(1_000), 10, ms(1_000));
        assert_eq!(estimate.target(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn f_152_slow_runs_that_end_together_prefetch_at_most_one() {
        let mut now = Instant::now();
        let (mut estimate, ms) = (PrefetchEstimate::new(now, 4, 1000), Duration::from_millis);
        for _ in 0..50 {
            now += ms(198);
            // Four runs of 200 ms end within two milliseconds.
            for done in [1, 2, 1] {
                now += ms(1);
                estimate.finished(done, ms(200));
                estimate.measure(now);
                assert!(estimate.target() <= 1, "{}", estimate.target());
            }
        }
        assert!(estimate.target() <= 1);
    }
}
