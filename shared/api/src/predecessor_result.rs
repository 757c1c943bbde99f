//! What the predecessors of a task have returned, as its worker gets it.

use bytes::Bytes;
use dueline_domain::{Predecessor, TaskAddress, TaskEnd, limits};

/// What a predecessor of a task has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredecessorResult {
    /// The predecessor.
    pub task: TaskAddress,
    /// How it ended.
    pub end: Option<TaskEnd>,
    /// How many bytes its result has; `None` if it has none or was deleted since.
    pub bytes: Option<u64>,
    /// The result itself. Absent if it would exceed the limit for all results of a task together: then it has to be asked
    /// for, by the address of the predecessor.
    pub result: Option<Bytes>,
}

impl From<&Predecessor> for PredecessorResult {
    fn from(predecessor: &Predecessor) -> Self {
        Self {
            task: predecessor.task.clone(),
            end: predecessor.end,
            bytes: None,
            result: None,
        }
    }
}

impl PredecessorResult {
    /// Adds what each predecessor has returned, in order. A result for which the limit leaves no room is only named.
    pub fn fill(results: &mut [Self], mut stored: impl FnMut(&TaskAddress) -> Option<Bytes>) {
        let mut room = limits().results_bytes_max;
        for one in results {
            let Some(bytes) = stored(&one.task) else {
                continue;
            };
            one.bytes = Some(bytes.len() as u64);
            if let Some(left) = room.checked_sub(bytes.len()) {
                room = left;
                one.result = Some(bytes);
            }
        }
    }

    /// Whether there is a result that was not passed on because it is too large.
    pub const fn is_only_named(&self) -> bool {
        self.bytes.is_some() && self.result.is_none()
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::{JobName, TaskId};

    use super::*;

    #[test]
    fn f_095_results_are_passed_on_up_to_a_limit_and_named_beyond_it() {
        let task = |number| TaskAddress {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([number; 16]),
        };
        let max = limits().results_bytes_max;
        let lengths = [Some(max - 10), None, Some(11), Some(10), Some(0), Some(1)];
        let mut results: Vec<_> = (0..6)
            .map(|number| PredecessorResult::from(&Predecessor::open(task(number))))
            .collect();
        PredecessorResult::fill(&mut results, |of| {
            let number = usize::from(of.id.as_bytes()[0]);
            lengths[number].map(|len| Bytes::from(vec![b'x'; len]))
        });
        let bytes: Vec<_> = results.iter().map(|one| one.bytes).collect();
        assert_eq!(bytes, lengths.map(|len| len.map(|len| len as u64)));
        let named: Vec<_> = results
            .iter()
            .map(PredecessorResult::is_only_named)
            .collect();
        assert_eq!(named, [false, false, true, false, false, true]);
        let passed_on = results.iter().filter_map(|one| one.result.as_ref());
        assert_eq!(passed_on.map(Bytes::len).sum::<usize>(), max);
    }
}
