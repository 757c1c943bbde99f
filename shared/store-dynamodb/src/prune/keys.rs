//! Idempotency keys whose tasks are gone.

use dueline_ports::StoreError;

use super::Budget;
use crate::{
    attr::{self, Item, get_bytes},
    calls::{Ask, Condition, For, Key},
    jobs::Entry,
    keyed, schema,
    store::Inner,
};

impl Inner {
    /// Prunes one page of keys; answers where to go on.
    pub(super) async fn prune_keys(
        &self,
        entry: &Entry,
        slot: u16,
        after: Option<Item>,
        budget: &mut Budget,
    ) -> Result<Option<Item>, StoreError> {
        let home = &entry.home;
        let of = For::job(home.job.as_str(), "prune");
        let partition = home.keys(slot);
        let ask = Ask {
            partition: &partition,
            after,
            ..Ask::default()
        };
        let page = self.table.query(of, ask).await?;
        budget.reads += 1;
        budget.units += page.read_units;
        let holders = page.items.iter().filter_map(|item| {
            let key = get_bytes(item, schema::SK).ok()??;
            Some((Key::new(&partition, key), keyed::holder(item).ok()?))
        });
        let holders: Vec<_> = holders.collect();
        let tasks: Vec<_> = holders
            .iter()
            .map(|(_, id)| Key::new(home.of(id), id.as_bytes()))
            .collect();
        // A key and its task come together, so a read that is certain finds both or neither.
        let only = [schema::PK, schema::SK];
        let present = self.table.get_many(of, &tasks, &only, true).await?;
        let present: std::collections::HashSet<_> = present.iter().filter_map(Key::of).collect();
        for ((key, id), task) in holders.iter().zip(&tasks) {
            if !present.contains(task) {
                let unchanged = Condition::Is(keyed::TASK, attr::bytes(id.as_bytes()));
                self.table.delete(of, key, Some(unchanged)).await?;
            }
        }
        Ok(page.next)
    }
}
