//! The SQS queues of one job: a single queue, or one per priority level.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use aws_sdk_sqs::types::QueueAttributeName;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, QueueError};
use tokio::{sync::Semaphore, time::timeout_at};

use crate::{
    client::MeteredClient,
    deletes::DeleteRequests,
    managed_queue::{ManagedQueue, QueueConfig},
    name::{LEVELS, QueueNames, level_of},
    pack::REFERENCE_LEN_MAX,
    packed_messages::PackedMessages,
    receive_buffer::{BufferedDelivery, ReceiveBuffer, ReceiveStep},
    request_batcher::RequestBatcher,
    request_tasks::RequestTasks,
    sends::SendRequests,
    wire,
};

/// Retention of messages. A task whose message is lost is enqueued again long before this.
const RETENTION_S: u32 = 4 * 24 * 3_600;
/// Retention of quarantined messages, for inspection by operators; the longest that SQS allows.
const QUARANTINE_RETENTION_S: u32 = 14 * 24 * 3_600;
/// The queue's default wait of a receive; the longest that SQS allows. Each receive sets its own.
const POLL_S: u32 = 20;
/// Concurrent background tasks that quarantine messages of one job.
const QUARANTINE_TASKS_MAX: usize = 2;

/// The tag that names the job of a queue.
pub(crate) const TAG_JOB: &str = "dueline:job";
/// The tag that names the deployment, by its prefix.
pub(crate) const TAG_PREFIX: &str = "dueline:prefix";

/// What the queues of all jobs share.
pub(crate) struct SqsContext {
    pub(crate) sqs: Arc<MeteredClient>,
    pub(crate) request_tasks: Arc<RequestTasks>,
    pub(crate) names: QueueNames,
    pub(crate) visibility_timeout: Duration,
    pub(crate) visibility_s: i32,
    pub(crate) priority_queues: bool,
    pub(crate) quarantine: Arc<ManagedQueue>,
}

/// The queues of one job.
pub(crate) struct SqsJobQueue {
    pub(crate) context: Arc<SqsContext>,
    pub(crate) job: JobName,
    /// One queue, or one per priority level, the most urgent first.
    pub(crate) levels: Vec<LevelQueue>,
    pub(crate) receive_buffer: ReceiveBuffer,
    pub(crate) packed_messages: PackedMessages,
    pub(crate) quarantine_permits: Semaphore,
}

/// The SQS queue of one priority level, with its batched requests.
pub(crate) struct LevelQueue {
    pub(crate) queue: Arc<ManagedQueue>,
    pub(crate) sends: Arc<RequestBatcher<SendRequests>>,
    pub(crate) deletes: Arc<RequestBatcher<DeleteRequests>>,
    /// References per message in the last receive.
    pub(crate) references_per_message: AtomicUsize,
    /// Consecutive receives that returned as many messages as requested.
    pub(crate) full_receives: AtomicUsize,
}

impl SqsContext {
    pub(crate) fn new(
        sqs: Arc<MeteredClient>,
        names: QueueNames,
        visibility_s: u16,
        priority_queues: bool,
    ) -> Arc<Self> {
        let tags = BTreeMap::from([(TAG_PREFIX.to_owned(), names.prefix().to_owned())]);
        let config = QueueConfig {
            attributes: attributes(visibility_s, QUARANTINE_RETENTION_S),
            tags,
        };
        let quarantine = ManagedQueue::new(sqs.clone(), None, names.quarantine(), config);
        Arc::new(Self {
            sqs,
            request_tasks: Arc::default(),
            names,
            visibility_timeout: Duration::from_secs(visibility_s.into()),
            visibility_s: visibility_s.into(),
            priority_queues,
            quarantine,
        })
    }
}

fn attributes(visibility_s: u16, retention_s: u32) -> BTreeMap<QueueAttributeName, String> {
    use QueueAttributeName::{
        MessageRetentionPeriod, ReceiveMessageWaitTimeSeconds, VisibilityTimeout,
    };
    BTreeMap::from([
        (VisibilityTimeout, visibility_s.to_string()),
        (MessageRetentionPeriod, retention_s.to_string()),
        (ReceiveMessageWaitTimeSeconds, POLL_S.to_string()),
    ])
}

impl SqsJobQueue {
    pub(crate) fn new(context: &Arc<SqsContext>, job: JobName) -> Arc<Self> {
        let levels = if context.priority_queues { LEVELS } else { 1 };
        let level = |level| {
            let level = context.priority_queues.then_some(level);
            let tags = [
                (TAG_PREFIX, context.names.prefix()),
                (TAG_JOB, job.as_str()),
            ];
            let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let visibility_s = u16::try_from(context.visibility_s).unwrap_or(u16::MAX);
            let config = QueueConfig {
                attributes: attributes(visibility_s, RETENTION_S),
                tags: BTreeMap::from(tags),
            };
            let name = context.names.job_queue(&job, level);
            let queue = ManagedQueue::new(context.sqs.clone(), Some(job.clone()), name, config);
            LevelQueue {
                sends: RequestBatcher::new(
                    SendRequests(queue.clone()),
                    context.request_tasks.clone(),
                ),
                deletes: RequestBatcher::new(
                    DeleteRequests(queue.clone()),
                    context.request_tasks.clone(),
                ),
                queue,
                references_per_message: AtomicUsize::new(1),
                full_receives: AtomicUsize::new(0),
            }
        };
        Arc::new(Self {
            context: context.clone(),
            levels: (0..levels).map(level).collect(),
            // This leaves the caller three quarters of the timeout until it must extend it.
            receive_buffer: ReceiveBuffer::new(levels, context.visibility_timeout / 4),
            packed_messages: PackedMessages::default(),
            quarantine_permits: Semaphore::new(QUARANTINE_TASKS_MAX),
            job,
        })
    }

    /// The level whose queue carries a task.
    pub(crate) fn level_of(&self, task: &TaskRef) -> usize {
        if self.levels.len() == 1 {
            0
        } else {
            level_of(task.priority)
        }
    }

    /// Sends references of this job to the queue of one level. Returns a result for each.
    pub(crate) async fn send(
        &self,
        level: usize,
        tasks: &[TaskRef],
    ) -> Vec<Result<(), QueueError>> {
        let references: Vec<_> = tasks.iter().map(wire::reference).collect();
        let Some(long) = references.iter().find(|r| r.len() > REFERENCE_LEN_MAX) else {
            return self.levels[level].sends.submit(references).await;
        };
        let why = format!("a reference of {} bytes is too long for SQS", long.len());
        let refused = Err(QueueError::Invalid(why.into()));
        let fitting = references.iter().filter(|r| r.len() <= REFERENCE_LEN_MAX);
        let sent = self.levels[level].sends.submit(fitting.cloned().collect());
        let mut sent = sent.await.into_iter();
        let result = |reference: &String| match reference.len() {
            0..=REFERENCE_LEN_MAX => sent.next().unwrap_or_else(|| refused.clone()),
            _ => refused.clone(),
        };
        references.iter().map(result).collect()
    }

    /// Waits for references in the receive buffer, which polls fill.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let mut receiver = self.receive_buffer.add_receiver(max, wait);
        loop {
            let mut changed = pin!(self.receive_buffer.changed.notified());
            changed.as_mut().enable();
            match receiver.step() {
                ReceiveStep::Deliver(deliveries) => return Ok(deliveries),
                ReceiveStep::Fail(error) => return Err(error),
                ReceiveStep::TimedOut => return Ok(Vec::new()),
                ReceiveStep::Wait { polls, until } => {
                    for poll in polls {
                        self.start_poll(poll);
                    }
                    match until {
                        // The next step checks whether the deadline has passed.
                        Some(until) => drop(timeout_at(until, changed).await),
                        None => changed.await,
                    }
                }
            }
        }
    }

    /// Returns buffered references to their queue when they expire, until the buffer is empty.
    pub(crate) async fn return_expired(self: Arc<Self>) {
        loop {
            let mut changed = pin!(self.receive_buffer.changed.notified());
            changed.as_mut().enable();
            let Some(until) = self.receive_buffer.next_expiry() else {
                return;
            };
            // A change may bring a reference that expires sooner.
            if timeout_at(until, changed).await.is_err() {
                let expired = self.receive_buffer.take_expired();
                self.return_to_queue(expired).await;
                self.receive_buffer.returned();
            }
        }
    }

    /// Returns references that no receiver takes to their queue. They are visible to other processes at once.
    pub(crate) async fn return_to_queue(&self, deliveries: Vec<BufferedDelivery>) {
        if deliveries.is_empty() {
            return;
        }
        let receipts = deliveries.iter().map(|buffered| &buffered.delivery.receipt);
        if let Err(error) = self.nack(receipts, Duration::ZERO).await {
            tracing::debug!(job.name = %self.job, %error, "failed to return messages; they become visible after their visibility timeout");
        }
    }
}
