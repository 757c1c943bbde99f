//! How many children may be added to a task before they have to be counted.
//!
//! Counting reads all edges of the parent. Each count allows this process an eighth of what is left up to the limit, so that the
//! children of a task are counted rarely, and often only near the limit. Up to eight frontends together keep the limit; more of
//! them may exceed it a little.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use dueline_domain::{TaskAddress, limits};

/// Parents that are remembered.
const PARENTS_MAX: usize = 10_000;
/// The share of what is left that one count allows.
const SHARE: usize = 8;

/// How many children each parent may get without a count.
#[derive(Debug, Default)]
pub(super) struct ChildCounts(Mutex<HashMap<TaskAddress, usize>>);

impl ChildCounts {
    /// Whether this many children may be added without a count. They are taken from what is allowed.
    pub(super) fn take(&self, parent: &TaskAddress, wanted: usize) -> bool {
        let mut allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = allowed.get_mut(parent);
        left.is_some_and(|left| match left.checked_sub(wanted) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => false,
        })
    }

    /// The children were counted, and these are to be added now.
    pub(super) fn counted(&self, parent: &TaskAddress, stored: usize, wanted: usize) {
        let mut allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if allowed.len() >= PARENTS_MAX {
            allowed.clear();
        }
        let left = limits().children_max.saturating_sub(stored + wanted);
        allowed.insert(parent.clone(), left / SHARE);
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::{JobName, TaskId};

    use super::*;

    #[test]
    fn f_094_children_are_counted_rarely_and_their_limit_is_exact() {
        let parent = TaskAddress {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([1; 16]),
        };
        let (counts, mut stored, mut reads) = (ChildCounts::default(), 0, 0);
        let max = limits().children_max;
        loop {
            if !counts.take(&parent, 1) {
                reads += 1;
                counts.counted(&parent, stored, 1);
                if stored == max {
                    break;
                }
            }
            stored += 1;
            assert!(stored <= max);
        }
        assert!(reads < 80, "{reads} counts");
    }
}
