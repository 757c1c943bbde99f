//! One poll: a receive, and more of them at once when there is a backlog.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_aws::Failure;
use dueline_ports::{Delivery, QueueError};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::{
    job_queue::{JobQueue, Level},
    pack::ENTRIES_MAX,
    receipt::Ticket,
    service::Incoming,
    set_aside::Stray,
    shelf::{Held, Poll},
    wire,
};

/// Receives at once while there is a backlog.
const EXTRA_MAX: usize = 4;
/// Such rounds in one poll.
const ROUNDS_MAX: usize = 8;
/// Pause after a long poll that came back empty at once.
const EARLY_PAUSE: Duration = Duration::from_secs(1);

impl JobQueue {
    /// Begins a poll. It goes on when the receiver that wanted it goes away.
    pub(crate) fn begin(self: &Arc<Self>, poll: Poll) {
        let under_way = UnderWay {
            queue: self.clone(),
            poll: Some(poll),
        };
        self.common.crew.spawn(async move {
            let result = under_way.queue.poll(poll).await;
            under_way.end(result).await;
        });
    }

    async fn poll(self: &Arc<Self>, poll: Poll) -> Result<Vec<Held>, QueueError> {
        let level = &self.levels[poll.level];
        let url = level.place.url().await?;
        let packed = level.packed.load(Ordering::Relaxed).max(1);
        let asked = self.shelf.wanted().div_ceil(packed).clamp(1, ENTRIES_MAX);
        let begun_at = Instant::now();
        let messages = self.receive_once(level, &url, asked, poll.wait_s).await;
        let messages = messages.map_err(|failure| level.place.error(&failure))?;
        let wait = Duration::from_secs(poll.wait_s.into());
        if messages.is_empty() && begun_at.elapsed() < wait / 2 {
            // Something between us and SQS does not wait: it must not be asked, and paid, in a tight loop.
            sleep(EARLY_PAUSE).await;
        }
        let is_full = messages.len() >= ENTRIES_MAX;
        let full_before = count_full(&level.full, is_full);
        let mut held = self.open(poll.level, messages);
        // A second full receive in a row means a backlog. After the first one it would often be an empty request.
        if is_full && full_before > 0 {
            self.receive_more(poll.level, &url, &mut held).await;
        }
        Ok(held)
    }

    async fn receive_once(
        &self,
        level: &Level,
        url: &str,
        max: usize,
        wait_s: u16,
    ) -> Result<Vec<Incoming>, Failure> {
        let visibility_s = self.common.visibility_s;
        let service = &level.place.service;
        service
            .receive(&self.job, url, max, wait_s, visibility_s)
            .await
    }

    async fn receive_more(self: &Arc<Self>, level: usize, url: &str, held: &mut Vec<Held>) {
        for _ in 0..ROUNDS_MAX {
            let packed = self.levels[level].packed.load(Ordering::Relaxed).max(1);
            let missing = self.shelf.wanted().saturating_sub(held.len());
            let messages = missing.div_ceil(packed);
            let requests = messages.div_ceil(ENTRIES_MAX).min(EXTRA_MAX);
            if requests == 0 {
                return;
            }
            let asked = messages.div_ceil(requests).min(ENTRIES_MAX);
            let receive = |_| self.receive_once(&self.levels[level], url, asked, 0);
            let mut is_full = true;
            for result in join_all((0..requests).map(receive)).await {
                match result {
                    Ok(messages) => {
                        is_full &= messages.len() >= asked;
                        held.extend(self.open(level, messages));
                    }
                    // What came before is worth more than this error; if it lasts, the next poll has it too.
                    Err(failure) => {
                        is_full = false;
                        tracing::debug!(job.name = %self.job, why = %failure.message, "failed to receive more messages");
                    }
                }
            }
            if !is_full {
                return;
            }
        }
    }

    /// Reads messages. Those that are none of ours are set aside meanwhile.
    fn open(self: &Arc<Self>, level: usize, messages: Vec<Incoming>) -> Vec<Held> {
        let count = messages.len();
        let (mut held, mut strays) = (Vec::new(), Vec::new());
        for incoming in messages {
            match wire::decode(&self.job, &incoming.body) {
                Ok(decoded) => self.unpack(level, &incoming, decoded, &mut held),
                Err(reason) => strays.push(Stray { incoming, reason }),
            }
        }
        if let Some(packed) = held.len().checked_div(count) {
            self.levels[level]
                .packed
                .store(packed.max(1), Ordering::Relaxed);
        }
        self.begin_set_aside(level, strays);
        held
    }

    fn unpack(
        &self,
        level: usize,
        incoming: &Incoming,
        decoded: wire::Decoded,
        held: &mut Vec<Held>,
    ) {
        let received = incoming.received.saturating_add(decoded.received_before);
        let handle: Arc<str> = incoming.handle.as_str().into();
        let timeout = self.common.visibility_timeout;
        let serial = match &decoded.tasks[..] {
            [_] => Some(0),
            tasks => self.ledger.add(handle.clone(), tasks, received, timeout),
        };
        let Some(serial) = serial else {
            tracing::warn!(job.name = %self.job, "too many packed messages are out; one is left to come back");
            return;
        };
        let received_at = Instant::now();
        for (index, task) in decoded.tasks.into_iter().enumerate() {
            let ticket = Ticket {
                level,
                serial,
                index,
                handle: handle.clone(),
            };
            let delivery = Delivery {
                task,
                receipt: ticket.receipt(&self.job),
                received,
            };
            held.push(Held {
                delivery,
                received_at,
            });
        }
    }
}

/// Counts full receives in a row; answers how many there were before.
fn count_full(full: &AtomicUsize, is_full: bool) -> usize {
    if is_full {
        full.fetch_add(1, Ordering::Relaxed)
    } else {
        full.swap(0, Ordering::Relaxed)
    }
}

/// A poll that those who wait are told the end of, however it ends.
struct UnderWay {
    queue: Arc<JobQueue>,
    poll: Option<Poll>,
}

impl UnderWay {
    async fn end(mut self, result: Result<Vec<Held>, QueueError>) {
        let Some(poll) = self.poll.take() else {
            return;
        };
        let ended = self.queue.shelf.ended(poll, result);
        if ended.keep {
            let queue = self.queue.clone();
            self.queue.common.crew.spawn(queue.keep());
        }
        if !ended.give_back.is_empty() {
            self.queue.give_back(ended.give_back).await;
            self.queue.shelf.given_back();
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(poll) = self.poll.take() {
            let error = QueueError::Unavailable("the poll broke off".into());
            self.queue.shelf.ended(poll, Err(error));
        }
    }
}
