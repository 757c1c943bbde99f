//! Finished tasks that outlived their job's retention, and tasks of deleted jobs.
//!
//! The walk goes along the table by row number, a bounded stretch at a time: no index on the end of a task is needed,
//! which would cost every task a write.

use std::{collections::HashMap, time::Duration};

use dueline_domain::{StateKind, Timestamp};
use dueline_ports::Pruned;

use super::{ItemError, Writer};

/// Rows looked at for each row that may be deleted.
const LOOKED_AT_PER_DELETED: usize = 8;

impl Writer {
    pub(super) fn prune(&mut self, now: Timestamp, limit: usize) -> Result<Pruned, ItemError> {
        let retention: HashMap<i64, Option<Duration>> = self
            .jobs
            .iter()
            .map(|entry| (entry.row, entry.job.policy.retention))
            .collect();
        let mut gone = Vec::new();
        let mut looked_at = 0;
        let looked_at_max = limit.saturating_mul(LOOKED_AT_PER_DELETED);
        let mut end = true;
        {
            let mut statement = self
                .db
                .prepare_cached("SELECT seq, job, state, finished_at FROM task WHERE seq > ?1")?;
            let mut rows = statement.query([self.prune_from])?;
            while let Some(row) = rows.next()? {
                let (seq, job): (i64, i64) = (row.get(0)?, row.get(1)?);
                let kind = StateKind::from_code(row.get(2)?);
                let finished_at: Option<i64> = row.get(3)?;
                let is_over = match retention.get(&job) {
                    // Of a job that was deleted. One that only cannot be read keeps its tasks.
                    None => !self.job_rows.contains(&job) && kind.is_some_and(StateKind::is_final),
                    Some(None) => false,
                    Some(Some(kept)) => {
                        finished_at.is_some_and(|at| Timestamp::clamped(at).after(*kept) <= now)
                    }
                };
                if is_over {
                    gone.push((seq, job, kind));
                }
                self.prune_from = seq;
                looked_at += 1;
                if gone.len() >= limit || looked_at >= looked_at_max {
                    end = false;
                    break;
                }
            }
        }
        if end {
            self.prune_from = 0;
        }
        for (seq, job, kind) in &gone {
            self.db
                .prepare_cached("DELETE FROM task WHERE seq = ?1")?
                .execute([seq])?;
            self.db
                .prepare_cached("DELETE FROM body WHERE seq = ?1")?
                .execute([seq])?;
            if let (Some(kind), true) = (kind, retention.contains_key(job)) {
                self.counts.add(*job, *kind, -1);
            }
        }
        Ok(Pruned {
            deleted: gone.len(),
            more: !end,
        })
    }
}
