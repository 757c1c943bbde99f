//! Idempotency keys whose tasks do not exist any more.

use dueline_ports::StoreError;

use super::PruneBudget;
use crate::{
    attr::{self, Item, get_bytes},
    calls::{CallContext, ItemKey, QueryRequest, WriteCondition},
    jobs::JobEntry,
    keyed, schema,
    store::DynamoStore,
};

impl DynamoStore {
    /// Prunes one page of keys. Answers where the next page begins.
    pub(super) async fn prune_keys(
        &self,
        entry: &JobEntry,
        slot: u16,
        after: Option<Item>,
        budget: &mut PruneBudget,
    ) -> Result<Option<Item>, StoreError> {
        let partitions = &entry.partitions;
        let context = CallContext::of_job(partitions.job.as_str(), "prune");
        let partition = partitions.keys(slot);
        let request = QueryRequest {
            partition: &partition,
            after,
            ..QueryRequest::default()
        };
        let page = self.table.query(context, request).await?;
        budget.reads += 1;
        budget.units += page.read_units;
        let found = page.items.iter().filter_map(|item| {
            let key = get_bytes(item, schema::SK).ok()??;
            Some((
                ItemKey::new(&partition, key),
                keyed::task_of_key(item).ok()?,
            ))
        });
        let found: Vec<_> = found.collect();
        let tasks: Vec<_> = found
            .iter()
            .map(|(_, id)| ItemKey::new(partitions.of_task(id), id.as_bytes()))
            .collect();
        // A key and its task are written in one transaction, so a consistent read finds the task of a valid key.
        let attributes = [schema::PK, schema::SK];
        let present = self
            .table
            .get_many(context, &tasks, &attributes, true)
            .await?;
        let present: std::collections::HashSet<_> =
            present.iter().filter_map(ItemKey::of).collect();
        for ((key, id), task) in found.iter().zip(&tasks) {
            if !present.contains(task) {
                let unchanged = WriteCondition::Is(keyed::TASK, attr::bytes(id.as_bytes()));
                self.table.delete(context, key, Some(unchanged)).await?;
            }
        }
        Ok(page.next)
    }
}
