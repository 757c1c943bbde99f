//! What happens to a firing while tasks of earlier firings are unfinished.

/// The overlap policy of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The firing is skipped while a task of an earlier one is unfinished.
    Skip,
    /// One firing waits until the tasks of the earlier ones have ended; further firings are skipped.
    #[default]
    QueueOne,
    /// Each firing gets its task at once.
    Allow,
    /// The unfinished tasks of earlier firings are cancelled, and the firing gets its task.
    CancelPrevious,
}

/// The firings of a schedule that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedFirings {
    /// Firings whose task is unfinished: it waits for a worker or for a retry, or it runs.
    pub active: u64,
    /// Firings that wait for the active ones to end.
    pub queued: u64,
}

/// What to do with a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapDecision {
    /// Create its task.
    Create,
    /// Keep it until [`Overlap::releases`] says that its task can be created.
    Queue,
    /// Skip it, and count it as skipped.
    Skip,
    /// Cancel the tasks of the active firings, drop the queued ones, and create its task.
    CancelAndCreate,
}

impl Overlap {
    /// All policies.
    pub const ALL: [Self; 4] = [
        Self::Skip,
        Self::QueueOne,
        Self::Allow,
        Self::CancelPrevious,
    ];

    /// The name on the wire and in stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::QueueOne => "queue_one",
            Self::Allow => "allow",
            Self::CancelPrevious => "cancel_previous",
        }
    }

    /// The policy of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|overlap| overlap.name() == name)
    }

    /// Decides about a firing that is due.
    pub const fn decide(self, unfinished: UnfinishedFirings) -> OverlapDecision {
        let UnfinishedFirings { active, queued } = unfinished;
        match (self, active, queued) {
            (Self::Allow, _, _) | (_, 0, 0) => OverlapDecision::Create,
            (Self::CancelPrevious, _, _) => OverlapDecision::CancelAndCreate,
            (Self::QueueOne, _, 0) => OverlapDecision::Queue,
            (Self::QueueOne | Self::Skip, _, _) => OverlapDecision::Skip,
        }
    }

    /// Whether the task of a queued firing can be created now. This holds under every policy, so that a firing that was
    /// queued before the policy changed does not wait for ever.
    pub const fn releases(self, unfinished: UnfinishedFirings) -> bool {
        let is_free = unfinished.active == 0 || matches!(self, Self::Allow);
        unfinished.queued > 0 && is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_05_the_overlap_policy_decides_every_case() {
        use OverlapDecision::{CancelAndCreate, Create, Queue, Skip};
        for (active, queued, [skip, queue_one, allow, cancel]) in [
            (0, 0, [Create, Create, Create, Create]),
            (1, 0, [Skip, Queue, Create, CancelAndCreate]),
            (5, 0, [Skip, Queue, Create, CancelAndCreate]),
            (0, 1, [Skip, Skip, Create, CancelAndCreate]),
            (1, 1, [Skip, Skip, Create, CancelAndCreate]),
            (2, 3, [Skip, Skip, Create, CancelAndCreate]),
        ] {
            let unfinished = UnfinishedFirings { active, queued };
            assert_eq!(Overlap::Skip.decide(unfinished), skip, "{unfinished:?}");
            assert_eq!(Overlap::QueueOne.decide(unfinished), queue_one);
            assert_eq!(Overlap::Allow.decide(unfinished), allow);
            assert_eq!(Overlap::CancelPrevious.decide(unfinished), cancel);
        }
    }

    #[test]
    fn g_05_a_queued_firing_is_released_when_the_earlier_ones_have_ended() {
        for overlap in Overlap::ALL {
            let releases = |active, queued| overlap.releases(UnfinishedFirings { active, queued });
            assert!(releases(0, 1) && !releases(0, 0));
            assert_eq!(releases(1, 1), overlap == Overlap::Allow);
        }
    }

    #[test]
    fn a_23_by_default_runs_do_not_overlap_and_none_is_lost() {
        let running = UnfinishedFirings {
            active: 1,
            queued: 0,
        };
        assert_eq!(Overlap::default().decide(running), OverlapDecision::Queue);
    }
}
