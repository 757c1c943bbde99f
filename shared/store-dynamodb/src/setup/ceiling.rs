//! The write rate of a table without the store, as a reference for benchmarks of the store.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_aws::classify;
use futures_util::future::join_all;
use tokio::time::{Duration, Instant};

use super::SetupClient;
use crate::{attr::num, calls::ItemKey, open::OpenError};

/// Partition of the items of the measurement, which stay until the table is deleted.
const PARTITION: &str = "ceiling";

impl SetupClient {
    /// Measures conditional updates of small items per second, by `callers` that each send one update after the other:
    /// the highest rate that any program can reach. Only for tables that were created for a measurement.
    pub async fn ceiling(
        &self,
        table: &str,
        callers: u32,
        duration: Duration,
    ) -> Result<f64, OpenError> {
        let (started, done) = (Instant::now(), AtomicU64::new(0));
        let callers = (0..callers.max(1)).map(|caller| {
            let done = &done;
            Box::pin(async move {
                // Each caller has a key of its own, over as many partitions as a store would use.
                let key =
                    ItemKey::new(format!("{PARTITION}#{}", caller % 16), caller.to_be_bytes());
                let mut written = 0_i64;
                while started.elapsed() < duration {
                    let call = self
                        .client
                        .update_item()
                        .table_name(table)
                        .set_key(Some(key.item()))
                        .update_expression("SET #w = :new, #b = :b")
                        .condition_expression("attribute_not_exists(#w) OR #w = :old")
                        .expression_attribute_names("#w", "w")
                        .expression_attribute_names("#b", "b")
                        .expression_attribute_values(":old", num(written))
                        .expression_attribute_values(":new", num(written + 1))
                        .expression_attribute_values(":b", AttributeValue::S("x".repeat(200)));
                    if let Err(failed) = Box::pin(call.send()).await {
                        return Err(self.error(classify(&failed), "UpdateItem", table));
                    }
                    written += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        for ended in join_all(callers).await {
            ended?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of some seconds")]
        Ok(done.into_inner() as f64 / started.elapsed().as_secs_f64())
    }
}
