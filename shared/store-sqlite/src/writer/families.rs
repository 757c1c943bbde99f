//! Edges of tasks that wait for others.

use dueline_domain::TaskEnd;
use dueline_ports::Edge;

use super::{ItemError, Writer};
use crate::row;

impl Writer {
    pub(crate) fn put_edges(&self, edges: &[Edge]) -> Result<(), ItemError> {
        let mut insert = self.db.prepare_cached(
            "INSERT OR IGNORE INTO edge (job, task, kind, to_job, to_task) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        // All or none: an error of one edge does not end the transaction.
        let rows = edges.iter().map(|edge| self.job_row(&edge.from.job));
        let rows: Vec<i64> = rows.collect::<Result<_, _>>()?;
        for (Edge { from, kind, to }, row) in edges.iter().zip(rows) {
            let (job, id) = (to.job.as_str(), to.id.as_bytes());
            insert.execute((row, from.id.as_bytes(), row::edge_code(*kind), job, id))?;
        }
        Ok(())
    }

    /// `None` means that the task has not ended.
    pub(crate) fn end_edge(&self, edge: &Edge, end: Option<TaskEnd>) -> Result<(), ItemError> {
        let row = self.job_row(&edge.from.job)?;
        let Edge { from, kind, to } = edge;
        let (job, id) = (to.job.as_str(), to.id.as_bytes());
        let kind = row::edge_code(*kind);
        self.db
            .prepare_cached(
                "INSERT INTO edge (job, task, kind, to_job, to_task, ended) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                 ON CONFLICT DO UPDATE SET ended = ?6",
            )?
            .execute((row, from.id.as_bytes(), kind, job, id, end.map(TaskEnd::name)))?;
        Ok(())
    }
}
