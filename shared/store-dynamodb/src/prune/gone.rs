//! What deleted jobs left.

use dueline_domain::JobName;
use dueline_ports::StoreError;

use super::Budget;
use crate::{
    attr::get_bytes,
    calls::{Ask, For, Key},
    parts,
    schema::{self, Home},
    store::Inner,
};

/// Items deleted with one read.
const PIECE: usize = 100;

impl Inner {
    /// Deletes a piece of what a deleted job left; answers whether there may be more.
    pub(super) async fn prune_gone(&self, budget: &mut Budget) -> Result<bool, StoreError> {
        let of = For::all("prune");
        let ask = Ask {
            partition: schema::GONE,
            limit: Some(1),
            ..Ask::default()
        };
        let page = self.table.query(of, ask).await?;
        budget.reads += 1;
        let Some(gone) = page.items.first() else {
            return Ok(page.next.is_some());
        };
        let key = get_bytes(gone, schema::SK)
            .ok()
            .flatten()
            .unwrap_or_default()
            .to_vec();
        let home = std::str::from_utf8(&key).ok().and_then(|name| {
            let (job, generation) = name.split_once('#')?;
            Some(Home {
                job: JobName::parse(job).ok()?,
                generation: generation.into(),
                slots: self.slots,
            })
        });
        let partitions = home.iter().flat_map(|home| {
            let slots = 0..home.slots;
            slots.flat_map(|slot| [home.tasks(slot), home.keys(slot)])
        });
        for partition in partitions {
            loop {
                let ask = Ask {
                    partition: &partition,
                    limit: Some(PIECE.min(budget.room()).max(1)),
                    consistent: true,
                    only: &[schema::PK, schema::SK],
                    ..Ask::default()
                };
                let page = self.table.query(of, ask).await?;
                budget.reads += 1;
                budget.units += page.read_units;
                let found = page
                    .items
                    .iter()
                    .filter_map(|item| get_bytes(item, schema::SK).ok()?);
                let keys: Vec<_> = found.map(|key| Key::new(&partition, key)).collect();
                self.table.delete_many(of, &keys).await?;
                let tasks = keys
                    .iter()
                    .filter(|key| partition.starts_with("t#") && parts::is_task(&key.sk));
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
        // Nothing is left, so nobody needs to know of it any more.
        self.table
            .delete(of, &Key::new(schema::GONE, key), None)
            .await?;
        Ok(true)
    }
}
