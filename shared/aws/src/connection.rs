//! Records whether the service answers, and since when.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::Class;

/// Most changes kept; older ones are dropped.
const CHANGES_MAX: usize = 16;

/// The state of a connection, derived from its calls. Clones share one record.
#[derive(Clone, Debug, Default)]
pub struct Connection(Arc<Mutex<VecDeque<(bool, Instant)>>>);

impl Connection {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(bool, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a call was answered.
    pub fn answered(&self) {
        self.record(true);
    }

    /// Records that a call failed. A response that refuses the call counts as an answer.
    pub fn failed(&self, class: Class) {
        self.record(!matches!(class, Class::NotSent | Class::Unknown));
    }

    fn record(&self, is_up: bool) {
        let mut changes = self.lock();
        if changes.back().is_some_and(|(was_up, _)| *was_up == is_up) {
            return;
        }
        if changes.len() == CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back((is_up, Instant::now()));
    }

    /// Whether the last call was answered; `true` before the first.
    pub fn is_up(&self) -> bool {
        self.lock().back().is_none_or(|(is_up, _)| *is_up)
    }

    /// The latest changes, oldest first: up or down, and how long ago.
    pub fn changes(&self) -> Vec<(bool, Duration)> {
        let changes = self.lock();
        changes.iter().map(|(up, at)| (*up, at.elapsed())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f_142_a_short_history_of_the_connection_is_kept() {
        let (connection, second) = (Connection::default(), Duration::from_secs(1));
        assert!(connection.is_up());
        connection.answered();
        tokio::time::advance(second).await;
        connection.failed(Class::Throttled);
        assert!(connection.is_up(), "a refusal is an answer");
        connection.failed(Class::Unknown);
        connection.failed(Class::NotSent);
        tokio::time::advance(second).await;
        assert!(!connection.is_up());
        connection.answered();
        let expected = [(true, second * 2), (false, second), (true, Duration::ZERO)];
        assert_eq!(connection.changes(), expected);
        for _ in 0..100 {
            connection.failed(Class::NotSent);
            connection.answered();
        }
        assert_eq!(connection.changes().len(), CHANGES_MAX);
    }
}
