//! What the predecessors of claimed tasks have returned.

use std::collections::{BTreeMap, BTreeSet};

use dueline_api::{ApiError, Assignment, PredecessorResult};
use dueline_domain::TaskAddress;
use dueline_ports::StoreError;
use futures_util::{StreamExt as _, stream};

use crate::StatusControllerService;

/// Predecessors that are read at once.
const READS_AT_ONCE: usize = 8;

impl StatusControllerService {
    /// Adds to each assignment what its predecessors have returned. Tasks without predecessors cost nothing. An assignment
    /// whose predecessors cannot be read is not given to the worker: its task comes back when its lease ends.
    pub(crate) async fn add_results(&self, answers: &mut [Result<Assignment, ApiError>]) {
        let assigned = answers.iter().filter_map(|answer| answer.as_ref().ok());
        let named = assigned.flat_map(|assignment| &assignment.results);
        // A predecessor that many of them have waited for is read once.
        let named: BTreeSet<TaskAddress> = named.map(|one| one.task.clone()).collect();
        if named.is_empty() {
            return;
        }
        let reads = named.into_iter().map(|task| {
            Box::pin(async move {
                let found = self.deps.store.get(&task.job, &task.id).await;
                (
                    task,
                    found.map(|found| found.and_then(|found| found.result)),
                )
            })
        });
        let reads: BTreeMap<TaskAddress, Result<_, StoreError>> = stream::iter(reads)
            .buffer_unordered(READS_AT_ONCE)
            .collect()
            .await;
        for answer in answers {
            let Ok(assignment) = answer else { continue };
            let mut results = assignment.results.iter();
            let failed = results.find_map(|one| reads.get(&one.task)?.as_ref().err());
            if let Some(error) = failed {
                *answer = Err(error.clone().into());
                continue;
            }
            PredecessorResult::fill(&mut assignment.results, |task| {
                reads.get(task)?.as_ref().ok()?.clone()
            });
        }
    }
}
