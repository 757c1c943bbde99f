//! How much to claim ahead: what the handlers of this moment get through while the next claim is on its way.

use std::time::Duration;

use tokio::time::Instant;

/// Claims kept ready cover this much time. Longer than a claim takes, and far shorter than a claim holds.
const HORIZON: Duration = Duration::from_millis(20);

/// Shortest time worth measuring over.
const WINDOW_MIN: Duration = Duration::from_millis(1);

/// A gap this long says all about the present pace; shorter ones are averaged.
const WINDOW_FULL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    done: u64,
    per_s: f64,
    target_max: u32,
    target: u32,
}

impl Pace {
    pub(crate) fn new(now: Instant, target_max: u32) -> Self {
        Self {
            since: now,
            done: 0,
            per_s: 0.0,
            target_max,
            target: 0,
        }
    }

    /// Weight whose run has ended.
    pub(crate) fn finished(&mut self, weight: u32) {
        self.done += u64::from(weight);
    }

    /// Looks at the clock.
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
        let target = self.per_s * HORIZON.as_secs_f64();
        self.target = (target as u32).min(self.target_max);
    }

    /// Weight to hold ready ahead of free slots.
    pub(crate) const fn target(&self) -> u32 {
        self.target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pace: &mut Pace, now: &mut Instant, steps: u32, step: Duration, done: u32) {
        for _ in 0..steps {
            *now += step;
            pace.finished(done);
            pace.measure(*now);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fast_handlers_get_hundreds_ahead_and_slow_ones_none() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now, 1000);
        assert_eq!(pace.target(), 0);
        run(&mut pace, &mut now, 20, Duration::from_millis(2), 50);
        assert!((450..=500).contains(&pace.target()), "{}", pace.target());
        run(&mut pace, &mut now, 20, Duration::from_millis(2), 5_000);
        assert_eq!(pace.target(), 1000);
        run(&mut pace, &mut now, 3, Duration::from_secs(1), 10);
        assert_eq!(pace.target(), 0);
    }
}
