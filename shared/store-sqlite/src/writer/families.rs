//! Edges of tasks that wait for others.

use dueline_ports::{Edge, StoreError};

use super::{ItemError, Writer};

impl Writer {
    pub(crate) fn put_edges(&self, edges: &[Edge]) -> Result<(), ItemError> {
        let mut insert = self.db.prepare_cached(
            "INSERT OR IGNORE INTO edge (job, task, kind, to_job, to_task) VALUES (?1, ?2, 0, ?3, ?4)",
        )?;
        let job = |edge: &Edge| {
            let entry = self.jobs.get(&edge.from.job);
            entry.ok_or_else(|| StoreError::no_job(&edge.from.job))
        };
        // All or none: an error of one edge does not end the transaction.
        let rows: Vec<i64> = edges
            .iter()
            .map(|edge| job(edge).map(|entry| entry.row))
            .collect::<Result<_, _>>()?;
        for (Edge { from, to }, row) in edges.iter().zip(rows) {
            insert.execute((row, from.id.as_bytes(), to.job.as_str(), to.id.as_bytes()))?;
        }
        Ok(())
    }
}
