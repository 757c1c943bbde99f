//! Settles received references: ack, nack and extend.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dueline_aws::Class;
use dueline_domain::TaskRef;
use dueline_ports::{QueueError, Receipt};
use futures_util::future::join_all;

use crate::{
    job_queue::SqsJobQueue,
    pack::{ENTRIES_MAX, REFERENCE_BYTES_MAX, REFERENCES_PER_REQUEST_MAX, fit},
    packed_messages::ReturnMethod,
    receipt::SqsReceipt,
    sends, wire,
};

/// Longest delay of a returned message: the limit of SQS counts from the receive, so an hour is left as a margin.
const RETURN_MAX_S: u64 = 11 * 3_600;
/// Longest delay of a new message.
const DELAY_MAX_S: u64 = 900;

/// Receipt handles of messages, by level.
type Handles = BTreeMap<usize, Vec<Arc<str>>>;

impl SqsJobQueue {
    /// Acknowledges references. Deletes messages whose references are all acknowledged.
    pub(crate) async fn ack<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
    ) -> Result<(), QueueError> {
        let mut completed = Handles::new();
        for receipt in self.own_receipts(receipts) {
            if receipt.serial == 0 || self.packed_messages.acknowledge(&receipt) {
                completed
                    .entry(receipt.level)
                    .or_default()
                    .push(receipt.handle);
            }
        }
        let delete = |(level, handles): (usize, _)| self.levels[level].deletes.submit(handles);
        let results = join_all(completed.into_iter().map(delete)).await;
        results.into_iter().flatten().collect()
    }

    /// Returns references to the queue; they are visible after `delay`.
    pub(crate) async fn nack<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let mut whole_messages = Handles::new();
        let mut partial_messages = Vec::new();
        let mut packed: BTreeMap<u64, Vec<SqsReceipt>> = BTreeMap::new();
        for receipt in self.own_receipts(receipts) {
            if receipt.serial == 0 {
                whole_messages
                    .entry(receipt.level)
                    .or_default()
                    .push(receipt.handle);
            } else {
                packed.entry(receipt.serial).or_default().push(receipt);
            }
        }
        for receipts in packed.into_values() {
            let level = receipts[0].level;
            match self.packed_messages.return_method(&receipts) {
                ReturnMethod::None => {}
                ReturnMethod::WholeMessage => {
                    let handles = whole_messages.entry(level).or_default();
                    handles.push(receipts[0].handle.clone());
                }
                ReturnMethod::NewMessage { tasks, received } => {
                    partial_messages.push((receipts, tasks, received))
                }
            }
        }
        let delay_s = u64::try_from(delay.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
        let visible = self.change_visibility(whole_messages, seconds(delay_s.min(RETURN_MAX_S)));
        let sent = join_all(
            partial_messages
                .into_iter()
                .map(|(receipts, tasks, received)| {
                    self.send_again(receipts, tasks, received, seconds(delay_s.min(DELAY_MAX_S)))
                }),
        );
        let (visible, sent) = tokio::join!(visible, sent);
        visible.and(sent.into_iter().collect())
    }

    /// Keeps messages invisible for the full timeout from now.
    pub(crate) async fn extend<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
    ) -> Result<(), QueueError> {
        let mut extended = Handles::new();
        let mut seen = BTreeSet::new();
        let timeout = self.context.visibility_timeout;
        for receipt in self.own_receipts(receipts) {
            let is_extended = receipt.serial == 0
                || (seen.insert(receipt.serial) && self.packed_messages.extend(&receipt, timeout));
            if is_extended {
                extended
                    .entry(receipt.level)
                    .or_default()
                    .push(receipt.handle);
            }
        }
        self.change_visibility(extended, self.context.visibility_s)
            .await
    }

    /// Decodes those receipts that this queue issued.
    fn own_receipts<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
    ) -> impl Iterator<Item = SqsReceipt> {
        let receipts = receipts.filter_map(SqsReceipt::parse);
        receipts.filter(|receipt| receipt.level < self.levels.len())
    }

    /// Sets the visibility timeout of messages. Failed entries are not an error: their receipt is old, or their message
    /// becomes visible again after its timeout.
    async fn change_visibility(
        &self,
        messages: Handles,
        visibility_s: i32,
    ) -> Result<(), QueueError> {
        let requests = messages.iter().flat_map(|(level, handles)| {
            let chunks = handles.chunks(ENTRIES_MAX);
            chunks.map(|chunk| self.change_visibility_batch(*level, chunk, visibility_s))
        });
        // Collected, so that all requests exist before the first one is polled.
        let requests: Vec<_> = requests.collect();
        join_all(requests).await.into_iter().collect()
    }

    async fn change_visibility_batch(
        &self,
        level: usize,
        handles: &[Arc<str>],
        visibility_s: i32,
    ) -> Result<(), QueueError> {
        let queue = &self.levels[level].queue;
        let handles: Vec<_> = handles.iter().map(AsRef::as_ref).collect();
        let changed = async {
            let url = queue.owned_url().await?;
            let sqs = &queue.sqs;
            let changed = sqs.change_visibility(&self.job, &url, &handles, visibility_s);
            changed.await
        };
        match changed.await {
            Ok(_) => Ok(()),
            Err(failure) => {
                let error = queue.error(&failure);
                // The messages were deleted together with their queue.
                if failure.class == Class::Missing {
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Sends references of a packed message as new messages, and acknowledges them in the old one, because SQS returns
    /// messages only as a whole. If that fails, they become visible again with the rest of their message.
    async fn send_again(
        &self,
        receipts: Vec<SqsReceipt>,
        tasks: Vec<TaskRef>,
        received: u32,
        delay_s: i32,
    ) -> Result<(), QueueError> {
        let Some(level) = receipts.first().map(|receipt| receipt.level) else {
            return Ok(());
        };
        let level = &self.levels[level];
        let references: Vec<_> = tasks.iter().map(wire::reference).collect();
        let mut rest = &references[..];
        while !rest.is_empty() {
            let sizes = rest.iter().map(|reference| reference.len() + 1);
            let count = fit(sizes, REFERENCES_PER_REQUEST_MAX, REFERENCE_BYTES_MAX);
            let (some, others) = rest.split_at(count);
            let results = sends::send(&level.queue, some, received, delay_s).await;
            results.into_iter().collect::<Result<(), _>>()?;
            rest = others;
        }
        let mut completed = None;
        for receipt in &receipts {
            if self.packed_messages.acknowledge(receipt) {
                completed = Some(receipt.handle.clone());
            }
        }
        if let Some(handle) = completed {
            let results = level.deletes.submit(vec![handle]).await;
            return results.into_iter().collect();
        }
        Ok(())
    }
}

fn seconds(seconds: u64) -> i32 {
    i32::try_from(seconds).unwrap_or(i32::MAX)
}
