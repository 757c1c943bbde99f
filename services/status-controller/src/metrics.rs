//! Counters. They are summed per call, so that a batch costs as much as a single task.

use dueline_api::{ApiError, Assignment};
use dueline_domain::{StateKind, Task};
use metrics::counter;

/// Counts the answers of one claim call.
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

/// Results of the reports of one call.
#[derive(Default)]
pub(crate) struct ReportCounts {
    ended: [u64; StateKind::ALL.len()],
    refused: u64,
}

impl ReportCounts {
    /// Counts a report that ended a run, by the state of the task after it.
    pub(crate) fn ended(&mut self, task: &Task) {
        self.ended[usize::from(task.kind().code())] += 1;
    }

    /// Counts a report of a worker that does not own the task any more.
    pub(crate) fn refused(&mut self) {
        self.refused += 1;
    }

    /// Adds the sums to the counters.
    pub(crate) fn record(self) {
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

/// Counts heartbeats answered from memory.
pub(crate) fn count_coalesced(heartbeats: u64) {
    if heartbeats > 0 {
        counter!("dueline_heartbeats_coalesced_total").increment(heartbeats);
    }
}

/// Counts tasks reclaimed from a worker that is gone.
pub(crate) fn count_owners_lost(tasks: usize) {
    if tasks > 0 {
        counter!("dueline_owners_lost_total").increment(tasks as u64);
    }
}

/// Counts expired workers.
pub(crate) fn count_expired_workers(workers: usize) {
    counter!("dueline_workers_forgotten_total").increment(workers as u64);
}

/// Counts deleted finished tasks.
pub(crate) fn count_pruned(tasks: usize) {
    counter!("dueline_tasks_pruned_total").increment(tasks as u64);
}
