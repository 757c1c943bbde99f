//! A poll: one receive, and several concurrent ones when there is a backlog.

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
    client::ReceivedMessage,
    job_queue::{LevelQueue, SqsJobQueue},
    pack::ENTRIES_MAX,
    quarantine::UnreadableMessage,
    receipt::SqsReceipt,
    receive_buffer::{BufferedDelivery, SqsPoll},
    wire,
};

/// Most concurrent receives while there is a backlog.
const CONCURRENT_RECEIVES_MAX: usize = 4;
/// Most rounds of concurrent receives in one poll.
const ROUNDS_MAX: usize = 8;
/// Pause after a long poll that returned empty without waiting.
const EARLY_PAUSE: Duration = Duration::from_secs(1);

impl SqsJobQueue {
    /// Starts a poll. It continues when the receiver that requested it is dropped.
    pub(crate) fn start_poll(self: &Arc<Self>, poll: SqsPoll) {
        let guard = PollGuard {
            queue: self.clone(),
            poll: Some(poll),
        };
        self.context.request_tasks.spawn(async move {
            let result = guard.queue.poll(poll).await;
            guard.end(result).await;
        });
    }

    async fn poll(self: &Arc<Self>, poll: SqsPoll) -> Result<Vec<BufferedDelivery>, QueueError> {
        let level = &self.levels[poll.level];
        let url = level.queue.url().await?;
        let packed = level.references_per_message.load(Ordering::Relaxed).max(1);
        let requested = self
            .receive_buffer
            .demand()
            .div_ceil(packed)
            .clamp(1, ENTRIES_MAX);
        let started_at = Instant::now();
        let messages = self.receive_once(level, &url, requested, poll.wait_s).await;
        let messages = messages.map_err(|failure| level.queue.error(&failure))?;
        let wait = Duration::from_secs(poll.wait_s.into());
        if messages.is_empty() && started_at.elapsed() < wait / 2 {
            // A proxy or engine that ignores the wait must not be polled, and billed, in a tight loop.
            sleep(EARLY_PAUSE).await;
        }
        let is_full = messages.len() >= ENTRIES_MAX;
        let full_before = count_full_receives(&level.full_receives, is_full);
        let mut buffered = self.decode(poll.level, messages);
        // Two full receives in a row indicate a backlog. After only one, the next request would often be empty.
        if is_full && full_before > 0 {
            self.receive_more(poll.level, &url, &mut buffered).await;
        }
        Ok(buffered)
    }

    async fn receive_once(
        &self,
        level: &LevelQueue,
        url: &str,
        max: usize,
        wait_s: u16,
    ) -> Result<Vec<ReceivedMessage>, Failure> {
        let visibility_s = self.context.visibility_s;
        let sqs = &level.queue.sqs;
        sqs.receive(&self.job, url, max, wait_s, visibility_s).await
    }

    async fn receive_more(
        self: &Arc<Self>,
        level: usize,
        url: &str,
        buffered: &mut Vec<BufferedDelivery>,
    ) {
        for _ in 0..ROUNDS_MAX {
            let packed = self.levels[level]
                .references_per_message
                .load(Ordering::Relaxed)
                .max(1);
            let missing = self.receive_buffer.demand().saturating_sub(buffered.len());
            let messages = missing.div_ceil(packed);
            let requests = messages.div_ceil(ENTRIES_MAX).min(CONCURRENT_RECEIVES_MAX);
            if requests == 0 {
                return;
            }
            let requested = messages.div_ceil(requests).min(ENTRIES_MAX);
            let receive = |_| self.receive_once(&self.levels[level], url, requested, 0);
            let mut is_full = true;
            for result in join_all((0..requests).map(receive)).await {
                match result {
                    Ok(messages) => {
                        is_full &= messages.len() >= requested;
                        buffered.extend(self.decode(level, messages));
                    }
                    // The messages received so far are kept. If the error persists, the next poll reports it.
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

    /// Decodes messages. Unreadable ones are quarantined in the background.
    fn decode(
        self: &Arc<Self>,
        level: usize,
        messages: Vec<ReceivedMessage>,
    ) -> Vec<BufferedDelivery> {
        let count = messages.len();
        let (mut buffered, mut unreadable) = (Vec::new(), Vec::new());
        for message in messages {
            match wire::decode(&self.job, &message.body) {
                Ok(decoded) => self.unpack(level, &message, decoded, &mut buffered),
                Err(reason) => unreadable.push(UnreadableMessage {
                    received: message,
                    reason,
                }),
            }
        }
        if let Some(packed) = buffered.len().checked_div(count) {
            self.levels[level]
                .references_per_message
                .store(packed.max(1), Ordering::Relaxed);
        }
        self.spawn_quarantine(level, unreadable);
        buffered
    }

    fn unpack(
        &self,
        level: usize,
        message: &ReceivedMessage,
        decoded: wire::DecodedMessage,
        buffered: &mut Vec<BufferedDelivery>,
    ) {
        let received = message.received.saturating_add(decoded.received_before);
        let handle: Arc<str> = message.handle.as_str().into();
        let timeout = self.context.visibility_timeout;
        let serial = match &decoded.tasks[..] {
            [_] => Some(0),
            tasks => self
                .packed_messages
                .add(handle.clone(), tasks, received, timeout),
        };
        let Some(serial) = serial else {
            tracing::warn!(job.name = %self.job, "too many packed messages are in flight; a message is left until its visibility timeout passes");
            return;
        };
        let received_at = Instant::now();
        for (index, task) in decoded.tasks.into_iter().enumerate() {
            let receipt = SqsReceipt {
                level,
                serial,
                index,
                handle: handle.clone(),
            };
            let delivery = Delivery {
                task,
                receipt: receipt.receipt(&self.job),
                received,
            };
            buffered.push(BufferedDelivery {
                delivery,
                received_at,
                waits_until: None,
            });
        }
    }
}

/// Counts consecutive full receives. Returns how many there were before.
fn count_full_receives(full: &AtomicUsize, is_full: bool) -> usize {
    if is_full {
        full.fetch_add(1, Ordering::Relaxed)
    } else {
        full.swap(0, Ordering::Relaxed)
    }
}

/// Reports the end of a poll to the receive buffer, also when the poll panics or is aborted.
struct PollGuard {
    queue: Arc<SqsJobQueue>,
    poll: Option<SqsPoll>,
}

impl PollGuard {
    async fn end(mut self, result: Result<Vec<BufferedDelivery>, QueueError>) {
        let Some(poll) = self.poll.take() else {
            return;
        };
        let follow_up = self.queue.receive_buffer.poll_ended(poll, result);
        if follow_up.start_expiry {
            let queue = self.queue.clone();
            self.queue
                .context
                .request_tasks
                .spawn(queue.return_expired());
        }
        if !follow_up.to_return.is_empty() {
            self.queue.return_to_queue(follow_up.to_return).await;
            self.queue.receive_buffer.returned();
        }
    }
}

impl Drop for PollGuard {
    fn drop(&mut self) {
        if let Some(poll) = self.poll.take() {
            let error = QueueError::Unavailable("the poll broke off".into());
            self.queue.receive_buffer.poll_ended(poll, Err(error));
        }
    }
}
