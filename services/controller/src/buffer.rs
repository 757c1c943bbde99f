//! Received messages that are not dispatched yet, in dispatch order.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use dueline_api::PollRequest;
use dueline_domain::{JobName, Priority, Timestamp};
use dueline_ports::{Delivery, Receipt};
use tokio::time::Instant;

use crate::{lookahead::Lookahead, waiting_polls::PolledRoom};

/// How many lighter tasks may be dispatched ahead of a task that exceeds the worker's free weight.
///
/// A few keep the worker busy while weight comes free. Without a bound, a stream of light tasks would block a heavy
/// task for ever.
pub(crate) const PASSES_MAX: u32 = 16;

/// Dispatch order within a job: priority, then due time, then arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MessageRank {
    priority: Reverse<Priority>,
    due_at: Timestamp,
    arrival: u64,
}

#[derive(Debug)]
struct BufferedMessage {
    delivery: Delivery,
    buffered_at: Instant,
    /// When its visibility timeout last began.
    hidden_since: Instant,
    /// How many lighter tasks were dispatched ahead of this one despite its higher rank.
    passed: u32,
}

#[derive(Debug)]
struct JobBuffer {
    handler: Arc<str>,
    messages: BTreeMap<MessageRank, BufferedMessage>,
    /// How many turns this job has had. Among equal priorities the job with the fewest turns goes first, so that a
    /// long backlog of one job does not delay a new task of another.
    turns: u64,
    /// Since when a receive has been waiting for messages of this job; `None` while none waits.
    receiving_since: Option<Instant>,
    lookahead: Lookahead,
}

impl JobBuffer {
    fn matches(&self, job: &JobName, poll: &PollRequest) -> bool {
        poll.jobs.contains(job) || poll.handlers.contains(&self.handler)
    }
}

/// The next message of one job. Order between jobs: priority, then turns, then the rank of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct JobHead {
    priority: Reverse<Priority>,
    turns: u64,
    rank: MessageRank,
    at: usize,
}

impl JobHead {
    const fn new(rank: MessageRank, turns: u64, at: usize) -> Self {
        Self {
            priority: rank.priority,
            turns,
            rank,
            at,
        }
    }
}

/// The buffered messages of all served jobs. Pure data; the lock is around it.
#[derive(Debug)]
pub(crate) struct MessageBuffer {
    jobs: BTreeMap<JobName, JobBuffer>,
    len_max: usize,
    len: usize,
    arrivals: u64,
    /// Turns of the job dispatched last. A job that becomes non-empty again starts here: it does not catch up on the
    /// turns it missed while empty.
    turns: u64,
}

impl MessageBuffer {
    pub(crate) const fn new(len_max: usize) -> Self {
        Self {
            jobs: BTreeMap::new(),
            len_max,
            len: 0,
            arrivals: 0,
            turns: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The jobs that are served.
    pub(crate) fn jobs(&self) -> Vec<JobName> {
        self.jobs.keys().cloned().collect()
    }

    /// The kind of handler of a served job that has no messages: none in this buffer, and none for the receive that
    /// waits at its queue.
    pub(crate) fn handler_if_empty(&self, job: &JobName) -> Option<Arc<str>> {
        let buffer = self.jobs.get(job)?;
        let is_empty = buffer.messages.is_empty() && buffer.receiving_since.is_some();
        is_empty.then(|| buffer.handler.clone())
    }

    /// The kind of handler of a served job.
    pub(crate) fn handler(&self, job: &JobName) -> Option<&Arc<str>> {
        self.jobs.get(job).map(|buffer| &buffer.handler)
    }

    /// Most messages that one job may have in the buffer.
    pub(crate) fn share(&self) -> usize {
        (self.len_max / self.jobs.len().max(1)).max(1)
    }

    /// Starts to serve a job, which shrinks the share of each other job. Returns the messages beyond the new shares,
    /// lowest ranks first; the caller nacks them.
    pub(crate) fn open(&mut self, job: &JobName, handler: &Arc<str>, now: Instant) -> Vec<Receipt> {
        let buffer = self.jobs.entry(job.clone()).or_insert_with(|| JobBuffer {
            handler: handler.clone(),
            messages: BTreeMap::new(),
            turns: 0,
            receiving_since: None,
            lookahead: Lookahead::new(now),
        });
        buffer.handler = handler.clone();
        let share = self.share();
        let mut excess = Vec::new();
        for buffer in self.jobs.values_mut() {
            while buffer.messages.len() > share {
                let last = buffer.messages.pop_last();
                excess.extend(last.map(|(_, message)| message.into_receipt()));
            }
        }
        self.len -= excess.len();
        excess
    }

    /// Stops serving a job. Returns its messages; the caller nacks them.
    pub(crate) fn close(&mut self, job: &JobName) -> Vec<Receipt> {
        let messages = self.jobs.remove(job).map(|buffer| buffer.messages);
        let receipts: Vec<_> = messages
            .into_iter()
            .flatten()
            .map(|(_, message)| message.into_receipt())
            .collect();
        self.len -= receipts.len();
        receipts
    }

    /// How many messages of this job there is room for.
    pub(crate) fn room(&self, job: &JobName) -> usize {
        let Some(buffer) = self.jobs.get(job) else {
            return 0;
        };
        let of_share = self.share().saturating_sub(buffer.messages.len());
        of_share.min(self.len_max.saturating_sub(self.len))
    }

    /// How many messages of this job to receive now: those that waiting polls have room for, and those that executors
    /// take while a receive is on its way. Messages that are too heavy for the waiting polls do not count as buffered.
    pub(crate) fn wanted(&mut self, job: &JobName, polled: PolledRoom, now: Instant) -> usize {
        let room = self.room(job);
        let Some(buffer) = self.jobs.get_mut(job) else {
            return 0;
        };
        let ahead = buffer.lookahead.target(now);
        let buffered = if polled.tasks == 0 {
            buffer.messages.len()
        } else {
            let messages = buffer.messages.values();
            messages
                .filter(|message| message.weight() <= polled.weight_max)
                .count()
        };
        // Without a waiting poll, a receive is worth its cost once half of the messages ahead are taken.
        if buffered >= polled.tasks && buffered > ahead / 2 {
            return 0;
        }
        (polled.tasks + ahead).saturating_sub(buffered).min(room)
    }

    /// Adds messages of one job. Returns those that find no room or whose job is not served; the caller nacks them.
    pub(crate) fn put(
        &mut self,
        job: &JobName,
        deliveries: Vec<Delivery>,
        now: Instant,
    ) -> Vec<Receipt> {
        let room = self.room(job);
        let Some(buffer) = self.jobs.get_mut(job) else {
            return deliveries.into_iter().map(|d| d.receipt).collect();
        };
        if buffer.messages.is_empty() {
            buffer.turns = buffer.turns.max(self.turns);
        }
        let mut deliveries = deliveries.into_iter();
        for delivery in deliveries.by_ref().take(room) {
            let rank = MessageRank {
                priority: Reverse(delivery.task.priority),
                due_at: delivery.task.due_at,
                arrival: self.arrivals,
            };
            self.arrivals += 1;
            self.len += 1;
            let message = BufferedMessage {
                delivery,
                buffered_at: now,
                hidden_since: now,
                passed: 0,
            };
            buffer.messages.insert(rank, message);
        }
        deliveries.map(|delivery| delivery.receipt).collect()
    }

    /// Removes the messages to dispatch for a poll, best first.
    ///
    /// A task that exceeds the worker's free weight is passed by at most [`PASSES_MAX`] lighter tasks. After that,
    /// nothing ranked below it is dispatched to a worker that can run it, until it fits. Tasks that the worker could
    /// never run stay in the buffer for other workers.
    pub(crate) fn pop(&mut self, poll: &PollRequest) -> Vec<Delivery> {
        let matching = |(job, buffer): &(&JobName, &mut JobBuffer)| {
            !buffer.messages.is_empty() && buffer.matches(job, poll)
        };
        let jobs = self.jobs.iter_mut().filter(matching);
        let mut buffers: Vec<_> = jobs.map(|(_, buffer)| buffer).collect();
        let mut heads: BinaryHeap<Reverse<JobHead>> = buffers
            .iter()
            .enumerate()
            .filter_map(|(at, buffer)| {
                let (rank, _) = buffer.messages.first_key_value()?;
                Some(Reverse(JobHead::new(*rank, buffer.turns, at)))
            })
            .collect();
        let mut popped = Vec::new();
        let mut waiting: Vec<(MessageRank, usize)> = Vec::new();
        let mut weight_left = poll.weight_max;
        while popped.len() < poll.tasks_max && weight_left > 0 {
            let Some(Reverse(JobHead {
                rank, turns, at, ..
            })) = heads.pop()
            else {
                break;
            };
            let JobBuffer {
                messages,
                turns: turns_of_job,
                lookahead,
                ..
            } = &mut *buffers[at];
            let after = (Bound::Excluded(rank), Bound::Unbounded);
            let next = messages.range(after).next();
            heads.extend(next.map(|(rank, _)| Reverse(JobHead::new(*rank, turns + 1, at))));
            let (weight, passed) = messages
                .get(&rank)
                .map_or((0, 0), |message| (message.weight(), message.passed));
            if weight > poll.task_weight_max {
                continue;
            }
            if weight > weight_left {
                waiting.push((rank, at));
                if passed >= PASSES_MAX {
                    break;
                }
                continue;
            }
            weight_left -= weight;
            self.turns = turns;
            *turns_of_job = turns + 1;
            lookahead.taken();
            popped.extend(messages.remove(&rank).map(|message| message.delivery));
            let mut passes_used_up = false;
            for (rank, at) in &waiting {
                if let Some(message) = buffers[*at].messages.get_mut(rank) {
                    message.passed += 1;
                    passes_used_up |= message.passed >= PASSES_MAX;
                }
            }
            if passes_used_up {
                break;
            }
        }
        self.len -= popped.len();
        popped
    }

    /// Whether the buffer has a task that this worker could run, even if it exceeds the free weight now.
    pub(crate) fn has_message_for(&self, poll: &PollRequest) -> bool {
        let matching = self.jobs.iter().filter(|(job, b)| b.matches(job, poll));
        let mut messages = matching.flat_map(|(_, buffer)| buffer.messages.values());
        messages.any(|message| message.weight() <= poll.task_weight_max)
    }

    /// Records since when a receive has been waiting for messages of this job; `None` when it has ended.
    pub(crate) fn set_receiving(&mut self, job: &JobName, since: Option<Instant>) {
        if let Some(buffer) = self.jobs.get_mut(job) {
            buffer.receiving_since = since;
        }
    }

    /// Records how long a receive took that returned messages.
    pub(crate) fn record_receive(&mut self, job: &JobName, took: Duration) {
        if let Some(buffer) = self.jobs.get_mut(job) {
            buffer.lookahead.received(took);
        }
    }

    /// For each served job of this poll, since when a receive has been waiting at its queue.
    pub(crate) fn receiving_since<'a>(
        &'a self,
        poll: &'a PollRequest,
    ) -> impl Iterator<Item = Option<Instant>> + 'a {
        let matching = self.jobs.iter().filter(|(job, b)| b.matches(job, poll));
        matching.map(|(_, buffer)| buffer.receiving_since)
    }

    /// When the oldest unused message of a job leaves the buffer, if no poll comes for it.
    pub(crate) fn unused_until(&self, job: &JobName) -> Option<Instant> {
        let buffer = self.jobs.get(job)?;
        let unused = buffer
            .messages
            .values()
            .filter(|message| message.passed == 0);
        let oldest = unused.map(|message| message.buffered_at).min()?;
        Some(oldest + buffer.lookahead.unused_time())
    }

    /// Removes the messages of a job that no poll came for. A message that lighter ones have passed keeps its turn.
    pub(crate) fn take_unused(&mut self, job: &JobName, now: Instant) -> Vec<Receipt> {
        let Some(buffer) = self.jobs.get_mut(job) else {
            return Vec::new();
        };
        let time = buffer.lookahead.unused_time();
        let unused = buffer.messages.extract_if(.., |_, message| {
            message.passed == 0 && message.buffered_at + time <= now
        });
        let unused: Vec<_> = unused.map(|(_, message)| message.into_receipt()).collect();
        self.len -= unused.len();
        unused
    }

    /// Removes all messages of a job that stays served.
    pub(crate) fn clear(&mut self, job: &JobName) -> Vec<Receipt> {
        let Some(buffer) = self.jobs.get_mut(job) else {
            return Vec::new();
        };
        let messages = std::mem::take(&mut buffer.messages);
        self.len -= messages.len();
        let messages = messages.into_values();
        messages.map(BufferedMessage::into_receipt).collect()
    }

    /// Removes the messages of a job that are heavier than `weight_max`.
    pub(crate) fn take_heavier(&mut self, job: &JobName, weight_max: u32) -> Vec<Delivery> {
        let Some(buffer) = self.jobs.get_mut(job) else {
            return Vec::new();
        };
        let is_heavier = |message: &BufferedMessage| message.weight() > weight_max;
        if !buffer.messages.values().any(is_heavier) {
            return Vec::new();
        }
        let all = std::mem::take(&mut buffer.messages);
        let (heavier, rest): (BTreeMap<_, _>, _) = all
            .into_iter()
            .partition(|(_, message)| is_heavier(message));
        buffer.messages = rest;
        self.len -= heavier.len();
        let heavier = heavier.into_values();
        heavier.map(|message| message.delivery).collect()
    }

    /// Returns the messages that have been invisible since `since` or longer, and restarts their timeouts at `now`.
    pub(crate) fn renew_hidden_since(&mut self, since: Instant, now: Instant) -> Vec<Receipt> {
        let messages = self.jobs.values_mut();
        let messages = messages.flat_map(|buffer| buffer.messages.values_mut());
        messages
            .filter(|message| message.hidden_since <= since)
            .map(|message| {
                message.hidden_since = now;
                message.delivery.receipt.clone()
            })
            .collect()
    }
}

impl BufferedMessage {
    fn weight(&self) -> u32 {
        u32::from(self.delivery.task.weight.get())
    }

    fn into_receipt(self) -> Receipt {
        self.delivery.receipt
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
