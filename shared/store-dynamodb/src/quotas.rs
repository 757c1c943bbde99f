//! Levels of quotas: one item for each job that has used its quota.

use std::time::Duration;

use dueline_ports::{QuotaSwap, QuotaWrite, StoreError};

use crate::{
    attr::{get_num, id_bytes, num},
    calls::{CallContext, ConditionalOutcome, ItemKey, WriteCondition},
    schema,
    store::DynamoStore,
};

/// The level.
const LEVEL: &str = "l";
/// The name of the latest write.
const WRITE: &str = "w";
/// DynamoDB deletes a level that was not replaced for this long. Any bucket is full by then, or has a rate at which that does
/// not matter.
const EXPIRES_AFTER: Duration = Duration::from_secs(86_400);

impl DynamoStore {
    pub(crate) async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        let jobs = self.jobs(false).await?;
        let jobs = self.jobs_including(jobs, &swap.job).await?;
        let entry = jobs.open(&swap.job)?;
        let mut item = ItemKey::new(entry.partitions.quota(), "quota").item();
        let write = id_bytes(swap.write.to_stored());
        item.insert(LEVEL.into(), num(swap.level));
        item.insert(WRITE.into(), write.clone());
        let expires_at = swap.now.after(EXPIRES_AFTER).millis() / 1_000;
        item.insert(schema::TTL.into(), num(expires_at));
        let condition = swap.seen.map_or(WriteCondition::Absent, |seen| {
            WriteCondition::Is(LEVEL, num(seen))
        });
        let context = CallContext::of_job(swap.job.as_str(), "swap_quota");
        Ok(
            match self.table.put(context, item, Some(condition)).await? {
                ConditionalOutcome::Done => QuotaWrite::Done,
                // The SDK repeats a call by itself, so the first try may have been this write.
                ConditionalOutcome::Refused(Some(stored)) if stored.get(WRITE) == Some(&write) => {
                    QuotaWrite::Done
                }
                ConditionalOutcome::Refused(stored) => {
                    let level = stored.map(|item| get_num(&item, LEVEL)).transpose();
                    let what = || format!("quota of '{}'", swap.job);
                    QuotaWrite::Differs(
                        level
                            .map_err(|invalid| invalid.into_error(what()))?
                            .flatten(),
                    )
                }
            },
        )
    }
}
