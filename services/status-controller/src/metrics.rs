//! Counters, added up per call so that a batch costs as much as one task.

use dueline_api::{ApiError, Assignment};
use dueline_domain::{StateKind, Task};
use dueline_ports::StoreError;
use metrics::counter;

use crate::report::has_moved;

/// Counts the answers to one call of claims.
pub(crate) fn count_claims(answers: &[Result<Assignment, ApiError>]) {
    let (mut ok, mut stale, mut error) = (0, 0, 0);
    for answer in answers {
        match answer {
            Ok(_) => ok += 1,
            Err(refused) if refused.is_retryable() => error += 1,
            Err(_) => stale += 1,
        }
    }
    for (result, count) in [("ok", ok), ("stale", stale), ("error", error)] {
        if count > 0 {
            counter!("dueline_claims_total", "result" => result).increment(count);
        }
    }
}

/// What the reports of one call came to.
#[derive(Default)]
pub(crate) struct Reports {
    ended: [u64; StateKind::ALL.len()],
    refused: u64,
}

impl Reports {
    /// A report ended a run and left the task as it is now.
    pub(crate) fn ended(&mut self, task: &Task) {
        self.ended[usize::from(task.kind().code())] += 1;
    }

    /// A report was not taken.
    pub(crate) fn refused(&mut self, error: &StoreError) {
        self.refused += u64::from(has_moved(error));
    }

    /// Hands the sums to the recorder.
    pub(crate) fn count(self) {
        for (kind, count) in StateKind::ALL.into_iter().zip(self.ended) {
            if count > 0 {
                let end = match kind {
                    StateKind::Enqueued => "abandoned",
                    kind => kind.name(),
                };
                counter!("dueline_runs_finished_total", "end" => end).increment(count);
            }
        }
        if self.refused > 0 {
            counter!("dueline_reports_refused_total").increment(self.refused);
        }
    }
}

/// Heartbeats were answered from memory.
pub(crate) fn count_coalesced(heartbeats: u64) {
    if heartbeats > 0 {
        counter!("dueline_heartbeats_coalesced_total").increment(heartbeats);
    }
}

/// Tasks were taken from a worker that is gone.
pub(crate) fn count_owners_lost(tasks: usize) {
    if tasks > 0 {
        counter!("dueline_owners_lost_total").increment(tasks as u64);
    }
}

/// Workers were silent for too long.
pub(crate) fn count_forgotten(workers: usize) {
    counter!("dueline_workers_forgotten_total").increment(workers as u64);
}

/// Finished tasks were deleted.
pub(crate) fn count_pruned(tasks: usize) {
    counter!("dueline_tasks_pruned_total").increment(tasks as u64);
}
