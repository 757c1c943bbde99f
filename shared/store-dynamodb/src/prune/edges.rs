//! Edges of tasks that do not exist any more.

use std::collections::BTreeSet;

use dueline_ports::StoreError;

use super::PruneBudget;
use crate::{
    attr::{Item, get_bytes},
    calls::{CallContext, ItemKey, QueryRequest},
    families,
    jobs::JobEntry,
    schema,
    store::DynamoStore,
};

impl DynamoStore {
    /// Prunes one page of edges. Answers where the next page begins.
    pub(super) async fn prune_edges(
        &self,
        entry: &JobEntry,
        slot: u16,
        after: Option<Item>,
        budget: &mut PruneBudget,
    ) -> Result<Option<Item>, StoreError> {
        let partitions = &entry.partitions;
        let context = CallContext::of_job(partitions.job.as_str(), "prune");
        let partition = partitions.edges(slot);
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
            let (from, _) = families::split_key(key)?;
            Some((ItemKey::new(&partition, key), from))
        });
        let found: Vec<_> = found.collect();
        let task_key = |id| ItemKey::new(partitions.of_task(id), id.as_bytes());
        let tasks: BTreeSet<_> = found.iter().map(|(_, from)| *from).collect();
        let tasks: Vec<_> = tasks.iter().map(task_key).collect();
        // An edge is stored after both of its tasks, so a consistent read finds the task of an edge that counts.
        let attributes = [schema::PK, schema::SK];
        let present = self
            .table
            .get_many(context, &tasks, &attributes, true)
            .await?;
        let present: BTreeSet<_> = present
            .iter()
            .filter_map(|item| ItemKey::of(item)?.task())
            .collect();
        let orphans = found.into_iter();
        let orphans = orphans.filter(|(_, from)| !present.contains(from));
        let keys: Vec<_> = orphans.map(|(key, _)| key).collect();
        self.table.delete_many(context, &keys).await?;
        Ok(page.next)
    }
}
