//! How many messages of a job to buffer ahead of the polls: as many as executors take while a receive is on its way.
//!
//! A receive from a queue in this process takes no time, so nothing is buffered: each poll gets the most urgent messages
//! of the queue. Messages buffered ahead hide from it what is sent later, and from other hosts what they could run.

use std::time::Duration;

use tokio::time::Instant;

/// Buffered messages cover this many receives: half of them are taken before the next receive begins.
const RECEIVES: u32 = 8;
/// Longest time that buffered messages cover.
const HORIZON_MAX: Duration = Duration::from_millis(200);
/// From this rate on, messages are buffered for [`FAST_HORIZON`] at least, so that a poll need not wait for a receive.
const FAST_PER_S: f64 = 1_000.0;
/// Far less than the polls of such handlers claim at once.
const FAST_HORIZON: Duration = Duration::from_millis(20);
/// Unused messages stay in the buffer for so many receives, so that a poll that comes soon need not receive them again.
const UNUSED_RECEIVES: u32 = 64;
/// Shortest and longest time that unused messages stay in the buffer.
const UNUSED_TIME: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How much longer than the one before a receive may seem to take. It may have waited for the messages.
const MARGIN: Duration = Duration::from_millis(1);
/// Shortest window of a measurement.
const WINDOW_MIN: Duration = Duration::from_millis(50);
/// From this window on, a measurement replaces the earlier rate; over shorter windows the two are averaged.
const WINDOW_FULL: Duration = Duration::from_millis(500);

/// Measures how many messages of a job are taken per second, and how long a receive takes.
#[derive(Debug)]
pub(crate) struct Lookahead {
    since: Instant,
    taken: u32,
    per_s: f64,
    /// How long a receive takes; `None` before the first one.
    receive_time: Option<Duration>,
}

impl Lookahead {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            taken: 0,
            per_s: 0.0,
            receive_time: None,
        }
    }

    /// Counts a message that was taken from the buffer.
    pub(crate) const fn taken(&mut self) {
        self.taken = self.taken.saturating_add(1);
    }

    /// Records how long a receive took that returned messages.
    pub(crate) fn received(&mut self, took: Duration) {
        let longest = self.receive_time.map(|time| time * 2 + MARGIN);
        self.receive_time = Some(longest.map_or(took, |longest| took.min(longest)));
    }

    /// How long messages stay in the buffer while no poll waits for their job.
    pub(crate) fn unused_time(&self) -> Duration {
        let (shortest, longest) = UNUSED_TIME;
        let time = self.receive_time.unwrap_or(longest);
        time.saturating_mul(UNUSED_RECEIVES)
            .clamp(shortest, longest)
    }

    /// How many messages to have ahead of the polls.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate; the cast saturates"
    )]
    pub(crate) fn target(&mut self, now: Instant) -> usize {
        let window = now.saturating_duration_since(self.since);
        if window >= WINDOW_MIN {
            let per_s = f64::from(self.taken) / window.as_secs_f64();
            let old = if window < WINDOW_FULL { 0.5 } else { 0.0 };
            self.per_s = self.per_s.mul_add(old, per_s * (1.0 - old));
            (self.since, self.taken) = (now, 0);
        }
        let receive_time = self.receive_time.unwrap_or_default();
        let horizon = receive_time.saturating_mul(RECEIVES).min(HORIZON_MAX);
        let horizon = match self.per_s >= FAST_PER_S {
            true => horizon.max(FAST_HORIZON),
            false => horizon,
        };
        (self.per_s * horizon.as_secs_f64()).round() as usize
    }
}
