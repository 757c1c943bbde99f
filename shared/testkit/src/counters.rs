//! Names and how often each was seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Counts by name. Clones share the counts.
///
/// A test that met none of what it was written for proves nothing: it sums these and requires each expected one.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counters {
    /// Nothing was seen yet.
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

    /// How often `name` was seen.
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

    /// Adds the counts of others to these.
    pub fn merge(&self, other: &Self) {
        for (name, n) in other.all() {
            self.add(name, n);
        }
    }

    /// Those of `expected` that were never seen.
    pub fn missing(&self, expected: &[&'static str]) -> Vec<&'static str> {
        let counts = self.all();
        let seen = |name: &&'static str| counts.get(name).is_some_and(|n| *n > 0);
        expected.iter().copied().filter(|n| !seen(n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_seen_is_named() {
        let (counters, other) = (Counters::new(), Counters::new());
        other.count("lost");
        counters.merge(&other);
        assert_eq!(counters.missing(&["lost", "doubled"]), ["doubled"]);
        assert_eq!(counters.get("lost"), 1);
    }
}
