//! How fast a table can be written at all, to compare a store with.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_aws::classify;
use futures_util::future::join_all;
use tokio::time::{Duration, Instant};

use super::Site;
use crate::{attr::num, calls::Key, open::OpenError};

/// Where the items of the measurement lie; they stay until the table is removed.
const PARTITION: &str = "ceiling";

impl Site {
    /// Conditional updates of small items a second, by `callers` that each wait for one after the other: what any program
    /// could do to the table. For tables that are made for a measurement.
    pub async fn ceiling(
        &self,
        table: &str,
        callers: u32,
        lasting: Duration,
    ) -> Result<f64, OpenError> {
        let (started, done) = (Instant::now(), AtomicU64::new(0));
        let callers = (0..callers.max(1)).map(|caller| {
            let done = &done;
            Box::pin(async move {
                // A key each, over as many partitions as a store would use.
                let key = Key::new(format!("{PARTITION}#{}", caller % 16), caller.to_be_bytes());
                let mut written = 0_i64;
                while started.elapsed() < lasting {
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
