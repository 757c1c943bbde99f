//! Packed messages in flight: which of their references are not acknowledged yet.
//!
//! Safety does not depend on these records. When a record is gone, its message becomes visible again, and the store
//! refuses the stale references, which are then acknowledged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_domain::TaskRef;
use tokio::time::Instant;

use crate::receipt::SqsReceipt;

/// Most packed messages recorded per job.
const RECORDS_MAX: usize = 10_000;
/// Number of records from which expired ones are removed.
const EXPIRY_MIN: usize = 64;

/// The packed messages of one job that this process has received.
#[derive(Debug, Default)]
pub(crate) struct PackedMessages(Mutex<MessageRecords>);

#[derive(Debug, Default)]
struct MessageRecords {
    by_serial: BTreeMap<u64, MessageRecord>,
    serial: u64,
    expire_at_len: usize,
}

#[derive(Debug)]
struct MessageRecord {
    handle: Arc<str>,
    /// By index; `None` once the reference is acknowledged.
    tasks: Vec<Option<TaskRef>>,
    received: u32,
    visible_at: Instant,
}

/// How references of a packed message are returned to the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReturnMethod {
    /// Nothing to do: the message is visible again, or will be after its timeout.
    None,
    /// The whole message becomes visible again: no reference of it is acknowledged.
    WholeMessage,
    /// A new message carries these references; they were received so often before.
    NewMessage { tasks: Vec<TaskRef>, received: u32 },
}

impl PackedMessages {
    fn lock(&self) -> MutexGuard<'_, MessageRecords> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a message and returns its number, or `None` when there are too many records. A message without a record
    /// is not delivered, and becomes visible again after its timeout.
    pub(crate) fn add(
        &self,
        handle: Arc<str>,
        tasks: &[TaskRef],
        received: u32,
        timeout: Duration,
    ) -> Option<u64> {
        let mut records = self.lock();
        let now = Instant::now();
        if records.by_serial.len() >= records.expire_at_len {
            // An expired handle still deletes a message that was not received again: hence twice the timeout.
            let is_live = |record: &MessageRecord| record.visible_at + timeout > now;
            records.by_serial.retain(|_, record| is_live(record));
            records.expire_at_len = (records.by_serial.len() * 2).max(EXPIRY_MIN);
        }
        if records.by_serial.len() >= RECORDS_MAX {
            return None;
        }
        records.serial += 1;
        let serial = records.serial;
        let record = MessageRecord {
            handle,
            tasks: tasks.iter().cloned().map(Some).collect(),
            received,
            visible_at: now + timeout,
        };
        records.by_serial.insert(serial, record);
        Some(serial)
    }

    /// Marks a reference as acknowledged. Returns whether its message is to be deleted now.
    pub(crate) fn acknowledge(&self, receipt: &SqsReceipt) -> bool {
        let mut records = self.lock();
        let Some(record) = records.find(receipt) else {
            return false;
        };
        if let Some(task) = record.tasks.get_mut(receipt.index) {
            *task = None;
        }
        let is_complete = record.tasks.iter().all(Option::is_none);
        if is_complete {
            records.by_serial.remove(&receipt.serial);
        }
        is_complete
    }

    /// Notes that the message of this receipt stays invisible for the full timeout. Returns whether the message is
    /// known.
    pub(crate) fn extend(&self, receipt: &SqsReceipt, timeout: Duration) -> bool {
        let mut records = self.lock();
        let record = records.find(receipt);
        let is_known = record.is_some();
        if let Some(record) = record {
            record.visible_at = Instant::now() + timeout;
        }
        is_known
    }

    /// How to return these references, all of one message. The record of a message that is returned whole is removed.
    pub(crate) fn return_method(&self, receipts: &[SqsReceipt]) -> ReturnMethod {
        let mut records = self.lock();
        let Some(first) = receipts.first() else {
            return ReturnMethod::None;
        };
        let Some(record) = records.find(first) else {
            return ReturnMethod::None;
        };
        if record.visible_at <= Instant::now() {
            return ReturnMethod::None;
        }
        let is_returned = |n: usize| receipts.iter().any(|receipt| receipt.index == n);
        let references = record.tasks.iter().enumerate();
        if references
            .clone()
            .all(|(n, task)| task.is_some() && is_returned(n))
        {
            records.by_serial.remove(&first.serial);
            return ReturnMethod::WholeMessage;
        }
        let tasks = references.filter(|(n, _)| is_returned(*n));
        let tasks: Vec<_> = tasks.filter_map(|(_, task)| task.clone()).collect();
        let received = record.received;
        if tasks.is_empty() {
            return ReturnMethod::None;
        }
        ReturnMethod::NewMessage { tasks, received }
    }
}

impl MessageRecords {
    fn find(&mut self, receipt: &SqsReceipt) -> Option<&mut MessageRecord> {
        let record = self.by_serial.get_mut(&receipt.serial);
        record.filter(|record| record.handle == receipt.handle)
    }
}

#[cfg(test)]
mod tests {
    use dueline_ports::conformance::queue::message;

    use super::*;
    use crate::wire::tests::job;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn add_three(messages: &PackedMessages) -> [SqsReceipt; 3] {
        let tasks: Vec<_> = (0..3).map(|n| message(&job(), n)).collect();
        let serial = messages.add("h".into(), &tasks, 2, TIMEOUT).expect("room");
        [0, 1, 2].map(|index| SqsReceipt {
            level: 0,
            serial,
            index,
            handle: "h".into(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_deleted_once_all_its_references_are_acknowledged() {
        let messages = PackedMessages::default();
        let [a, b, c] = add_three(&messages);
        assert!(
            !messages.acknowledge(&a) && !messages.acknowledge(&a) && !messages.acknowledge(&c)
        );
        assert!(messages.acknowledge(&b));
        assert!(!messages.acknowledge(&b), "the record is removed");
    }

    #[tokio::test(start_paused = true)]
    async fn another_handle_is_another_message() {
        let messages = PackedMessages::default();
        let [mut a, ..] = add_three(&messages);
        a.handle = "i".into();
        assert!(!messages.acknowledge(&a) && !messages.extend(&a, TIMEOUT));
        assert_eq!(messages.return_method(&[a]), ReturnMethod::None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unacknowledged_message_is_returned_whole_and_otherwise_in_part() {
        let messages = PackedMessages::default();
        let receipts = add_three(&messages);
        assert_eq!(
            messages.return_method(&receipts),
            ReturnMethod::WholeMessage
        );
        assert_eq!(messages.return_method(&receipts), ReturnMethod::None);
        let receipts = add_three(&messages);
        messages.acknowledge(&receipts[1]);
        let ReturnMethod::NewMessage { tasks, received } = messages.return_method(&receipts) else {
            panic!("one of them is acknowledged");
        };
        assert_eq!((tasks.len(), received), (2, 2));
        assert!(
            matches!(messages.return_method(&receipts[..1]), ReturnMethod::NewMessage { tasks, .. } if tasks.len() == 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_visible_again_is_not_returned() {
        let messages = PackedMessages::default();
        let receipts = add_three(&messages);
        tokio::time::advance(TIMEOUT / 2).await;
        assert!(messages.extend(&receipts[0], TIMEOUT));
        tokio::time::advance(TIMEOUT).await;
        assert_eq!(messages.return_method(&receipts), ReturnMethod::None);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_records_make_room() {
        let messages = PackedMessages::default();
        for _ in 0..RECORDS_MAX {
            add_three(&messages);
        }
        assert_eq!(messages.add("h".into(), &[], 1, TIMEOUT), None);
        messages.lock().expire_at_len = 0;
        tokio::time::advance(TIMEOUT * 2).await;
        add_three(&messages);
        assert_eq!(messages.lock().by_serial.len(), 1);
    }
}
