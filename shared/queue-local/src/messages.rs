//! The messages of one job: who is next, who is out, who comes back when.

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
    hunger::Hunger,
};

/// Place in the line: priority, then due time, then arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Reverse<Priority>,
    due_at: Timestamp,
    arrival: u64,
}

#[derive(Debug)]
struct Message {
    task: TaskRef,
    received: u32,
}

#[derive(Debug)]
struct Hidden {
    message: Message,
    rank: Rank,
    until: Instant,
}

/// The messages of one job. Not a clock and not a lock: both come from outside.
#[derive(Debug)]
pub(crate) struct Messages {
    config: LocalQueueConfig,
    visible: BTreeMap<Rank, Message>,
    /// Received or returned with a delay, by the number of the receipt.
    hidden: FoldMap<u64, Hidden>,
    /// When hidden messages come back; the same messages as in `hidden`.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Every message, visible or hidden, so that none is there twice.
    known: FoldSet<(Token, TaskId)>,
    arrivals: u64,
    pub(crate) hunger: Hunger,
}

impl Messages {
    pub(crate) fn new(config: LocalQueueConfig) -> Self {
        Self {
            config,
            visible: BTreeMap::new(),
            hidden: FoldMap::default(),
            deadlines: BTreeSet::new(),
            known: FoldSet::default(),
            arrivals: 0,
            hunger: Hunger::unknown(),
        }
    }

    /// Takes a message in; false when there is no room for it. A less urgent one is pushed out for it: the store
    /// still has it.
    pub(crate) fn offer(&mut self, task: TaskRef) -> bool {
        let rank = Rank {
            priority: Reverse(task.priority),
            due_at: task.due_at,
            arrival: self.arrivals,
        };
        let key = (task.token, task.id);
        if self.room() == 0 {
            if self.known.contains(&key) {
                return true;
            }
            self.hunger.missed();
            let Some(last) = self.visible.last_entry().filter(|last| *last.key() > rank) else {
                return false;
            };
            let last = last.remove().task;
            self.known.remove(&(last.token, last.id));
        }
        if self.known.insert(key) {
            self.arrivals += 1;
            self.visible.insert(rank, Message { task, received: 0 });
            self.hunger.added();
        }
        true
    }

    /// Takes up to `max` messages out, most urgent first; receipts are numbered from `number` on. Answers the next
    /// free number.
    pub(crate) fn take(
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

    /// Deletes the message of a receipt, if it is still out under it.
    pub(crate) fn delete(&mut self, number: u64) {
        if let Some(hidden) = self.unhide(number) {
            let task = hidden.message.task;
            self.known.remove(&(task.token, task.id));
        }
    }

    /// Returns the message of a receipt: visible at once, or after `delay` under the new number `parked`, which
    /// nobody is told.
    pub(crate) fn put_back(&mut self, number: u64, delay: Duration, parked: u64, now: Instant) {
        let Some(hidden) = self.unhide(number) else {
            return;
        };
        if delay.is_zero() {
            self.visible.insert(hidden.rank, hidden.message);
        } else {
            self.hide(parked, hidden.message, hidden.rank, now + delay);
        }
    }

    /// Keeps the message of a receipt out for the full visibility timeout.
    pub(crate) fn extend(&mut self, number: u64, now: Instant) {
        if let Some(hidden) = self.hidden.get_mut(&number) {
            self.deadlines.remove(&(hidden.until, number));
            hidden.until = now + self.config.visibility_timeout;
            self.deadlines.insert((hidden.until, number));
        }
    }

    /// Makes visible what has been out for too long.
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

    /// When the next hidden message comes back.
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
        let held = self.visible.len() + self.hidden.len();
        self.config.capacity_per_job.saturating_sub(held)
    }

    /// Whether it would help to send more now. Room for a few messages only is not worth a read of the store.
    pub(crate) fn wants_refill(&self) -> bool {
        let room_min = (self.config.capacity_per_job / 8).max(1);
        self.visible.len() < self.config.low_water && self.room() >= room_min
    }

    fn hide(&mut self, number: u64, message: Message, rank: Rank, until: Instant) {
        self.deadlines.insert((until, number));
        let hidden = Hidden {
            message,
            rank,
            until,
        };
        self.hidden.insert(number, hidden);
    }

    fn unhide(&mut self, number: u64) -> Option<Hidden> {
        let hidden = self.hidden.remove(&number)?;
        self.deadlines.remove(&(hidden.until, number));
        Some(hidden)
    }
}
