//! The remains of deleted jobs: finished tasks with their blobs, idempotency keys, and edges.

use dueline_domain::JobName;
use dueline_ports::StoreError;

use super::PruneBudget;
use crate::{
    attr::get_bytes,
    blobs,
    calls::{CallContext, ItemKey, QueryRequest},
    schema::{self, JobPartitions},
    store::DynamoStore,
};

/// Most items that are deleted after one read.
const BATCH_MAX: usize = 100;

impl DynamoStore {
    /// Deletes some of the remains of one deleted job. Answers whether there may be more.
    pub(super) async fn prune_deleted_jobs(
        &self,
        budget: &mut PruneBudget,
    ) -> Result<bool, StoreError> {
        let context = CallContext::of_table("prune");
        let request = QueryRequest {
            partition: schema::DELETED_JOBS,
            limit: Some(1),
            ..QueryRequest::default()
        };
        let page = self.table.query(context, request).await?;
        budget.reads += 1;
        let Some(deleted) = page.items.first() else {
            return Ok(page.next.is_some());
        };
        let key = get_bytes(deleted, schema::SK)
            .ok()
            .flatten()
            .unwrap_or_default()
            .to_vec();
        let job = std::str::from_utf8(&key).ok().and_then(|name| {
            let (job, generation) = name.split_once('#')?;
            Some(JobPartitions {
                job: JobName::parse(job).ok()?,
                generation: generation.into(),
                slots: self.slots,
            })
        });
        let partitions = job.iter().flat_map(|job| {
            let slots = 0..job.slots;
            let of_slots = slots.flat_map(|slot| {
                [
                    job.tasks(slot),
                    job.keys(slot),
                    job.schedules(slot),
                    job.edges(slot),
                ]
            });
            of_slots.chain([job.quota(), job.lanes()])
        });
        for partition in partitions {
            loop {
                let request = QueryRequest {
                    partition: &partition,
                    limit: Some(BATCH_MAX.min(budget.room()).max(1)),
                    consistent: true,
                    attributes: &[schema::PK, schema::SK],
                    ..QueryRequest::default()
                };
                let page = self.table.query(context, request).await?;
                budget.reads += 1;
                budget.units += page.read_units;
                let found = page
                    .items
                    .iter()
                    .filter_map(|item| get_bytes(item, schema::SK).ok()?);
                let keys: Vec<_> = found.map(|key| ItemKey::new(&partition, key)).collect();
                self.table.delete_many(context, &keys).await?;
                let tasks = keys
                    .iter()
                    .filter(|key| partition.starts_with("t#") && blobs::is_task(&key.sk));
                budget.deleted += tasks.count();
                if page.next.is_none() {
                    break;
                }
                if budget.spent() {
                    return Ok(true);
                }
            }
            if budget.spent() {
                return Ok(true);
            }
        }
        // Nothing remains of this job, so its entry is deleted last.
        self.table
            .delete(context, &ItemKey::new(schema::DELETED_JOBS, key), None)
            .await?;
        Ok(true)
    }
}
