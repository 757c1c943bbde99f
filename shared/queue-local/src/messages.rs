//! The messages of one job: which are visible and in what order, which are hidden, and until when.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dueline_domain::{Priority, TaskId, TaskRef, Timestamp, Token};
use dueline_ports::{Delivery, Depth, Receipt};
use tokio::time::Instant;

use crate::{
    config::LocalQueueConfig,
    hash::{FoldMap, FoldSet},
    refill::RefillState,
};

/// Order of messages within a queue: priority, then due time, then arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MessageRank {
    priority: Reverse<Priority>,
    due_at: Timestamp,
    arrival: u64,
}

#[derive(Debug)]
struct QueuedMessage {
    task: TaskRef,
    /// How often the message was received.
    received: u32,
}

/// A message that no receiver sees until `until`.
#[derive(Debug)]
struct HiddenMessage {
    message: QueuedMessage,
    rank: MessageRank,
    until: Instant,
}

/// The messages of one job. The caller passes the time in and holds the lock.
#[derive(Debug)]
pub(crate) struct JobMessages {
    config: LocalQueueConfig,
    visible: BTreeMap<MessageRank, QueuedMessage>,
    /// Messages received, or returned with a delay, by the number of the receipt.
    hidden: FoldMap<u64, HiddenMessage>,
    /// When hidden messages become visible; the same messages as in `hidden`.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Keys of all messages, visible or hidden, so that none is stored twice.
    keys: FoldSet<(Token, TaskId)>,
    arrivals: u64,
    pub(crate) refill: RefillState,
}

impl JobMessages {
    pub(crate) fn new(config: LocalQueueConfig) -> Self {
        Self {
            config,
            visible: BTreeMap::new(),
            hidden: FoldMap::default(),
            deadlines: BTreeSet::new(),
            keys: FoldSet::default(),
            arrivals: 0,
            refill: RefillState::unknown(),
        }
    }

    /// Adds a message; false when there is no room for it. When the queue is full, the least urgent visible message
    /// is evicted if it ranks behind the new one; the task of the evicted message is still ready in the store.
    pub(crate) fn add(&mut self, task: TaskRef) -> bool {
        let rank = MessageRank {
            priority: Reverse(task.priority),
            due_at: task.due_at,
            arrival: self.arrivals,
        };
        let key = (task.token, task.id);
        if self.room() == 0 {
            if self.keys.contains(&key) {
                return true;
            }
            self.refill.missed();
            let Some(last) = self.visible.last_entry().filter(|last| *last.key() > rank) else {
                return false;
            };
            let last = last.remove().task;
            self.keys.remove(&(last.token, last.id));
        }
        if self.keys.insert(key) {
            self.arrivals += 1;
            self.visible
                .insert(rank, QueuedMessage { task, received: 0 });
            self.refill.added();
        }
        true
    }

    /// Receives up to `max` messages, most urgent first. Receipts are numbered from `number` on. Answers the next free
    /// number.
    pub(crate) fn receive(
        &mut self,
        max: usize,
        now: Instant,
        mut number: u64,
        into: &mut Vec<Delivery>,
    ) -> u64 {
        let until = now + self.config.visibility_timeout;
        for _ in 0..max {
            let Some((rank, mut message)) = self.visible.pop_first() else {
                break;
            };
            message.received = message.received.saturating_add(1);
            let (task, received) = (message.task.clone(), message.received);
            let job = task.job.clone();
            into.push(Delivery {
                task,
                receipt: Receipt::Local { job, number },
                received,
            });
            self.hide(number, message, rank, until);
            number += 1;
        }
        number
    }

    /// Deletes the message of a receipt, if the receipt is still valid.
    pub(crate) fn delete(&mut self, number: u64) {
        if let Some(hidden) = self.unhide(number) {
            let task = hidden.message.task;
            self.keys.remove(&(task.token, task.id));
        }
    }

    /// Returns the message of a receipt: visible at once, or after `delay`. A delayed message is hidden under
    /// `delay_number`, which no receipt carries, so the old receipt is no longer valid.
    pub(crate) fn nack(&mut self, number: u64, delay: Duration, delay_number: u64, now: Instant) {
        let Some(hidden) = self.unhide(number) else {
            return;
        };
        if delay.is_zero() {
            self.visible.insert(hidden.rank, hidden.message);
        } else {
            self.hide(delay_number, hidden.message, hidden.rank, now + delay);
        }
    }

    /// Keeps the message of a receipt hidden for the full visibility timeout from now.
    pub(crate) fn extend(&mut self, number: u64, now: Instant) {
        if let Some(hidden) = self.hidden.get_mut(&number) {
            self.deadlines.remove(&(hidden.until, number));
            hidden.until = now + self.config.visibility_timeout;
            self.deadlines.insert((hidden.until, number));
        }
    }

    /// Makes messages visible whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((until, number)) = self.deadlines.first().copied() {
            if until > now {
                break;
            }
            if let Some(hidden) = self.unhide(number) {
                self.visible.insert(hidden.rank, hidden.message);
            }
        }
    }

    /// When the next hidden message becomes visible.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    pub(crate) fn has_visible(&self) -> bool {
        !self.visible.is_empty()
    }

    pub(crate) fn depth(&self) -> Depth {
        Depth {
            visible: self.visible.len() as u64,
            in_flight: self.hidden.len() as u64,
        }
    }

    /// How many more messages there is room for.
    pub(crate) fn room(&self) -> usize {
        let stored = self.visible.len() + self.hidden.len();
        self.config.capacity_per_job.saturating_sub(stored)
    }

    /// Whether a refill is worth a read of the store: few messages are visible, and there is room for more than a few.
    pub(crate) fn is_low(&self) -> bool {
        let room_min = (self.config.capacity_per_job / 8).max(1);
        self.visible.len() < self.config.low_water && self.room() >= room_min
    }

    fn hide(&mut self, number: u64, message: QueuedMessage, rank: MessageRank, until: Instant) {
        self.deadlines.insert((until, number));
        let hidden = HiddenMessage {
            message,
            rank,
            until,
        };
        self.hidden.insert(number, hidden);
    }

    fn unhide(&mut self, number: u64) -> Option<HiddenMessage> {
        let hidden = self.hidden.remove(&number)?;
        self.deadlines.remove(&(hidden.until, number));
        Some(hidden)
    }
}
