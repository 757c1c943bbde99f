//! Which references of packed messages are still out.
//!
//! Nothing depends on this for safety: a message that comes back because its record is gone holds references that the
//! store refuses as stale, and that are then acknowledged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_domain::TaskRef;
use tokio::time::Instant;

use crate::receipt::Ticket;

/// Packed messages of one job remembered at most.
const RECORDS_MAX: usize = 10_000;
/// Records to look through before lapsed ones are worth a sweep.
const SWEEP_MIN: usize = 64;

/// The packed messages of one job that were received here.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    by_serial: BTreeMap<u64, Record>,
    serial: u64,
    sweep_at: usize,
}

#[derive(Debug)]
struct Record {
    handle: Arc<str>,
    /// By place; none once it is done.
    tasks: Vec<Option<TaskRef>>,
    received: u32,
    visible_at: Instant,
}

/// What to do so that references of a packed message come back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// The message came back already, or will by itself.
    Nothing,
    /// None of it is done: the message as a whole.
    Whole,
    /// A message of their own for these, which were received so often.
    Part { tasks: Vec<TaskRef>, received: u32 },
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a message and answers its number; none when there are too many, and it is best left alone.
    pub(crate) fn add(
        &self,
        handle: Arc<str>,
        tasks: &[TaskRef],
        received: u32,
        timeout: Duration,
    ) -> Option<u64> {
        let mut records = self.lock();
        let now = Instant::now();
        if records.by_serial.len() >= records.sweep_at {
            // A message that was not received again can be deleted by an old handle: hence twice the timeout.
            let is_live = |record: &Record| record.visible_at + timeout > now;
            records.by_serial.retain(|_, record| is_live(record));
            records.sweep_at = (records.by_serial.len() * 2).max(SWEEP_MIN);
        }
        if records.by_serial.len() >= RECORDS_MAX {
            return None;
        }
        records.serial += 1;
        let serial = records.serial;
        let record = Record {
            handle,
            tasks: tasks.iter().cloned().map(Some).collect(),
            received,
            visible_at: now + timeout,
        };
        records.by_serial.insert(serial, record);
        Some(serial)
    }

    /// A reference is done; answers whether its message is to be deleted now.
    pub(crate) fn done(&self, ticket: &Ticket) -> bool {
        let mut records = self.lock();
        let Some(record) = records.find(ticket) else {
            return false;
        };
        if let Some(task) = record.tasks.get_mut(ticket.index) {
            *task = None;
        }
        let is_over = record.tasks.iter().all(Option::is_none);
        if is_over {
            records.by_serial.remove(&ticket.serial);
        }
        is_over
    }

    /// The message of this ticket stays invisible for the full timeout; answers whether it is known.
    pub(crate) fn extend(&self, ticket: &Ticket, timeout: Duration) -> bool {
        let mut records = self.lock();
        let record = records.find(ticket);
        let is_known = record.is_some();
        if let Some(record) = record {
            record.visible_at = Instant::now() + timeout;
        }
        is_known
    }

    /// How these references, all of one message, come back. A message that goes back as a whole is forgotten.
    pub(crate) fn take_back(&self, tickets: &[Ticket]) -> Back {
        let mut records = self.lock();
        let Some(first) = tickets.first() else {
            return Back::Nothing;
        };
        let Some(record) = records.find(first) else {
            return Back::Nothing;
        };
        if record.visible_at <= Instant::now() {
            return Back::Nothing;
        }
        let is_meant = |n: usize| tickets.iter().any(|ticket| ticket.index == n);
        let places = record.tasks.iter().enumerate();
        if places
            .clone()
            .all(|(n, task)| task.is_some() && is_meant(n))
        {
            records.by_serial.remove(&first.serial);
            return Back::Whole;
        }
        let tasks = places.filter(|(n, _)| is_meant(*n));
        let tasks: Vec<_> = tasks.filter_map(|(_, task)| task.clone()).collect();
        let received = record.received;
        if tasks.is_empty() {
            return Back::Nothing;
        }
        Back::Part { tasks, received }
    }
}

impl Records {
    fn find(&mut self, ticket: &Ticket) -> Option<&mut Record> {
        let record = self.by_serial.get_mut(&ticket.serial);
        record.filter(|record| record.handle == ticket.handle)
    }
}

#[cfg(test)]
mod tests {
    use dueline_ports::conformance::queue::message;

    use super::*;
    use crate::wire::tests::job;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn three(ledger: &Ledger) -> [Ticket; 3] {
        let tasks: Vec<_> = (0..3).map(|n| message(&job(), n)).collect();
        let serial = ledger.add("h".into(), &tasks, 2, TIMEOUT).expect("room");
        [0, 1, 2].map(|index| Ticket {
            level: 0,
            serial,
            index,
            handle: "h".into(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_deleted_once_all_of_it_is_done() {
        let ledger = Ledger::default();
        let [a, b, c] = three(&ledger);
        assert!(!ledger.done(&a) && !ledger.done(&a) && !ledger.done(&c));
        assert!(ledger.done(&b));
        assert!(!ledger.done(&b), "it is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn another_handle_is_another_message() {
        let ledger = Ledger::default();
        let [mut a, ..] = three(&ledger);
        a.handle = "i".into();
        assert!(!ledger.done(&a) && !ledger.extend(&a, TIMEOUT));
        assert_eq!(ledger.take_back(&[a]), Back::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn an_untouched_message_goes_back_whole_and_otherwise_in_part() {
        let ledger = Ledger::default();
        let tickets = three(&ledger);
        assert_eq!(ledger.take_back(&tickets), Back::Whole);
        assert_eq!(ledger.take_back(&tickets), Back::Nothing);
        let tickets = three(&ledger);
        ledger.done(&tickets[1]);
        let Back::Part { tasks, received } = ledger.take_back(&tickets) else {
            panic!("one of them is done");
        };
        assert_eq!((tasks.len(), received), (2, 2));
        assert!(
            matches!(ledger.take_back(&tickets[..1]), Back::Part { tasks, .. } if tasks.len() == 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_visible_again_is_left_alone() {
        let ledger = Ledger::default();
        let tickets = three(&ledger);
        tokio::time::advance(TIMEOUT / 2).await;
        assert!(ledger.extend(&tickets[0], TIMEOUT));
        tokio::time::advance(TIMEOUT).await;
        assert_eq!(ledger.take_back(&tickets), Back::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn lapsed_records_make_room() {
        let ledger = Ledger::default();
        for _ in 0..RECORDS_MAX {
            three(&ledger);
        }
        assert_eq!(ledger.add("h".into(), &[], 1, TIMEOUT), None);
        ledger.lock().sweep_at = 0;
        tokio::time::advance(TIMEOUT * 2).await;
        three(&ledger);
        assert_eq!(ledger.lock().by_serial.len(), 1);
    }
}
