//! Bounds how many calls are handled at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Lets a fixed number of calls in; the rest is turned away at once instead of queueing up.
pub(super) struct Gate {
    inside: AtomicUsize,
    max: usize,
}

impl Gate {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            inside: AtomicUsize::new(0),
            max,
        }
    }

    /// A place inside, free again on drop; `None` when all are taken.
    pub(super) fn enter(&self) -> Option<Place<'_>> {
        let place = Place(&self.inside);
        let before = self.inside.fetch_add(1, Ordering::AcqRel);
        (before < self.max).then_some(place)
    }
}

pub(super) struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_opens_again_when_one_leaves() {
        let gate = Gate::new(2);
        let first = gate.enter().unwrap();
        let _second = gate.enter().unwrap();
        assert!(gate.enter().is_none());
        assert!(gate.enter().is_none());
        drop(first);
        assert!(gate.enter().is_some());
    }
}
