//! Worker records.

use dueline_domain::WorkerId;
use dueline_ports::WorkerRecord;

use super::{ItemError, Writer};

impl Writer {
    pub(crate) fn put_workers(&self, workers: &[WorkerRecord]) -> Result<(), ItemError> {
        let mut statement = self
            .db
            .prepare_cached("INSERT OR REPLACE INTO worker (id, record) VALUES (?1, ?2)")?;
        for worker in workers {
            statement.execute((worker.id.as_str(), dueline_records::worker_to_json(worker)))?;
        }
        Ok(())
    }

    pub(crate) fn remove_workers(&self, ids: &[WorkerId]) -> Result<(), ItemError> {
        let mut statement = self.db.prepare_cached("DELETE FROM worker WHERE id = ?1")?;
        for id in ids {
            statement.execute([id.as_str()])?;
        }
        Ok(())
    }
}
