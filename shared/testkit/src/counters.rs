//! Counts of named situations.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Counts by name. Clones share the counts.
///
/// A test proves nothing about a situation that it does not meet. It therefore merges the counts of its runs and
/// requires each expected name.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counters {
    /// No counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one.
    pub fn count(&self, name: &'static str) {
        self.add(name, 1);
    }

    /// Counts `n`.
    pub fn add(&self, name: &'static str, n: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name).or_default() += n;
    }

    /// The count of `name`.
    pub fn get(&self, name: &str) -> u64 {
        self.all().get(name).copied().unwrap_or(0)
    }

    /// All counts by name.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds the counts of `other` to these.
    pub fn merge(&self, other: &Self) {
        for (name, n) in other.all() {
            self.add(name, n);
        }
    }

    /// The names of `expected` whose count is zero.
    pub fn missing(&self, expected: &[&'static str]) -> Vec<&'static str> {
        let counts = self.all();
        let was_counted = |name: &&'static str| counts.get(name).is_some_and(|n| *n > 0);
        expected
            .iter()
            .copied()
            .filter(|name| !was_counted(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_count_are_missing() {
        let (counters, other) = (Counters::new(), Counters::new());
        other.count("lost");
        counters.merge(&other);
        assert_eq!(counters.missing(&["lost", "doubled"]), ["doubled"]);
        assert_eq!(counters.get("lost"), 1);
    }
}
