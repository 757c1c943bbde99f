//! Bounds log lines that a fault repeats with every call.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Shortest time between two lines.
const PERIOD: Duration = Duration::from_secs(5);

/// Admits the first of several like log lines, then one per five seconds with the number of lines that were left out.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<LogLimitState>);

#[derive(Debug, Default)]
struct LogLimitState {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// A limit that has admitted nothing yet.
    pub const fn new() -> Self {
        Self(Mutex::new(LogLimitState {
            last: None,
            left_out: 0,
        }))
    }

    /// Whether a line is to be written now: the number of lines left out before it, or `None`.
    pub fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now < last + PERIOD) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_line_is_written_and_later_ones_are_counted() {
        let limit = LogLimit::new();
        assert_eq!(limit.admit(), Some(0));
        for _ in 0..1_000 {
            assert_eq!(limit.admit(), None);
        }
        tokio::time::advance(PERIOD).await;
        assert_eq!(limit.admit(), Some(1_000));
        assert_eq!(limit.admit(), None);
        tokio::time::advance(PERIOD * 3).await;
        assert_eq!(limit.admit(), Some(1));
    }
}
