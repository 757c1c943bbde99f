//! What becomes of received references: done, back to the queue, or kept a while longer.

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
    job_queue::JobQueue,
    ledger::Back,
    pack::{ENTRIES_MAX, REFERENCE_BYTES_MAX, REFERENCES_PER_REQUEST_MAX, fit},
    receipt::Ticket,
    sends, wire,
};

/// Longest visibility timeout, with an hour to spare: it counts from the receive.
const RETURN_MAX_S: u64 = 11 * 3_600;
/// Longest delay of a new message.
const DELAY_MAX_S: u64 = 900;

/// Handles of messages, by level.
type Handles = BTreeMap<usize, Vec<Arc<str>>>;

impl JobQueue {
    /// Deletes messages whose references are all done.
    pub(crate) async fn ack<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
    ) -> Result<(), QueueError> {
        let mut over = Handles::new();
        for ticket in self.tickets(receipts) {
            if ticket.serial == 0 || self.ledger.done(&ticket) {
                over.entry(ticket.level).or_default().push(ticket.handle);
            }
        }
        let delete = |(level, handles): (usize, _)| self.levels[level].deletes.submit(handles);
        let results = join_all(over.into_iter().map(delete)).await;
        results.into_iter().flatten().collect()
    }

    /// Makes references visible again after `delay`.
    pub(crate) async fn nack<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let mut whole = Handles::new();
        let mut parts = Vec::new();
        let mut packed: BTreeMap<u64, Vec<Ticket>> = BTreeMap::new();
        for ticket in self.tickets(receipts) {
            if ticket.serial == 0 {
                whole.entry(ticket.level).or_default().push(ticket.handle);
            } else {
                packed.entry(ticket.serial).or_default().push(ticket);
            }
        }
        for tickets in packed.into_values() {
            let level = tickets[0].level;
            match self.ledger.take_back(&tickets) {
                Back::Nothing => {}
                Back::Whole => {
                    let handles = whole.entry(level).or_default();
                    handles.push(tickets[0].handle.clone());
                }
                Back::Part { tasks, received } => parts.push((tickets, tasks, received)),
            }
        }
        let delay_s = u64::try_from(delay.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
        let visible = self.change_visibility(whole, seconds(delay_s.min(RETURN_MAX_S)));
        let sent = join_all(parts.into_iter().map(|(tickets, tasks, received)| {
            self.send_again(tickets, tasks, received, seconds(delay_s.min(DELAY_MAX_S)))
        }));
        let (visible, sent) = tokio::join!(visible, sent);
        visible.and(sent.into_iter().collect())
    }

    /// Keeps messages invisible for the full timeout from now.
    pub(crate) async fn extend<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
    ) -> Result<(), QueueError> {
        let mut kept = Handles::new();
        let mut seen = BTreeSet::new();
        let timeout = self.common.visibility_timeout;
        for ticket in self.tickets(receipts) {
            let is_kept = ticket.serial == 0
                || (seen.insert(ticket.serial) && self.ledger.extend(&ticket, timeout));
            if is_kept {
                kept.entry(ticket.level).or_default().push(ticket.handle);
            }
        }
        self.change_visibility(kept, self.common.visibility_s).await
    }

    /// Those of the receipts that are ours.
    fn tickets<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
    ) -> impl Iterator<Item = Ticket> {
        let tickets = receipts.filter_map(Ticket::parse);
        tickets.filter(|ticket| ticket.level < self.levels.len())
    }

    /// Entries that fail are old receipts, or come back by their timeout: they are no error.
    async fn change_visibility(
        &self,
        messages: Handles,
        visibility_s: i32,
    ) -> Result<(), QueueError> {
        let requests = messages.iter().flat_map(|(level, handles)| {
            let chunks = handles.chunks(ENTRIES_MAX);
            chunks.map(|chunk| self.change_some(*level, chunk, visibility_s))
        });
        // Owned, so that the requests do not depend on the order in which the iterator is asked.
        let requests: Vec<_> = requests.collect();
        join_all(requests).await.into_iter().collect()
    }

    async fn change_some(
        &self,
        level: usize,
        handles: &[Arc<str>],
        visibility_s: i32,
    ) -> Result<(), QueueError> {
        let place = &self.levels[level].place;
        let handles: Vec<_> = handles.iter().map(AsRef::as_ref).collect();
        let changed = async {
            let url = place.look_up().await?;
            let service = &place.service;
            let changed = service.change_visibility(&self.job, &url, &handles, visibility_s);
            changed.await
        };
        match changed.await {
            Ok(_) => Ok(()),
            Err(failure) => {
                let error = place.error(&failure);
                // A queue that is gone has no messages to return.
                if failure.class == Class::Missing {
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// References that cannot be returned alone are sent as messages of their own, and are done here. If that fails,
    /// they come back with the rest of their message.
    async fn send_again(
        &self,
        tickets: Vec<Ticket>,
        tasks: Vec<TaskRef>,
        received: u32,
        delay_s: i32,
    ) -> Result<(), QueueError> {
        let Some(level) = tickets.first().map(|ticket| ticket.level) else {
            return Ok(());
        };
        let level = &self.levels[level];
        let references: Vec<_> = tasks.iter().map(wire::reference).collect();
        let mut rest = &references[..];
        while !rest.is_empty() {
            let sizes = rest.iter().map(|reference| reference.len() + 1);
            let count = fit(sizes, REFERENCES_PER_REQUEST_MAX, REFERENCE_BYTES_MAX);
            let (some, others) = rest.split_at(count);
            let results = sends::send(&level.place, some, received, delay_s).await;
            results.into_iter().collect::<Result<(), _>>()?;
            rest = others;
        }
        let mut over = None;
        for ticket in &tickets {
            if self.ledger.done(ticket) {
                over = Some(ticket.handle.clone());
            }
        }
        if let Some(handle) = over {
            let results = level.deletes.submit(vec![handle]).await;
            return results.into_iter().collect();
        }
        Ok(())
    }
}

fn seconds(seconds: u64) -> i32 {
    i32::try_from(seconds).unwrap_or(i32::MAX)
}
