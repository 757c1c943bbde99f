//! The task queue over the SQS queues of all jobs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use aws_sdk_sqs::{Client, types::QueueAttributeName};
use dueline_aws::{Class, Meter};
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, TaskQueue};
use futures_util::{StreamExt as _, future::join_all, stream};
use tokio::time::timeout;

use crate::{
    client::MeteredClient,
    job_queue::{SqsContext, SqsJobQueue},
    managed_queue::{ManagedQueue, QueueOwner},
    name::QueueNames,
    options::{OpenError, SqsOptions},
};

/// Queues that one call addresses concurrently.
const QUEUES_AT_ONCE: usize = 32;

/// Longest wait of a nack for running polls that could receive the returned messages.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// One SQS queue per job. Clones of the `Arc` share state; requests in flight are aborted when the last one is dropped.
pub struct SqsQueue {
    context: Arc<SqsContext>,
    /// Sorted, so that iterating over all jobs has a stable order.
    jobs: Mutex<BTreeMap<JobName, Arc<SqsJobQueue>>>,
}

impl SqsQueue {
    /// Uses an existing client, with its own endpoint, credentials and retries. Of `options.aws`, only the timeout is
    /// used, for long polls.
    pub fn from_client(
        client: Client,
        options: SqsOptions,
        meter: Meter,
    ) -> Result<Arc<Self>, OpenError> {
        let names = QueueNames::new(&options.prefix)?;
        let visibility_s = options.visibility_s()?;
        let sqs = Arc::new(MeteredClient::new(client, meter, options.aws.timeout));
        Ok(Arc::new(Self {
            context: SqsContext::new(sqs, names, visibility_s, options.priority_queues),
            jobs: Mutex::default(),
        }))
    }

    pub(crate) fn context(&self) -> &Arc<SqsContext> {
        &self.context
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobName, Arc<SqsJobQueue>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn job(&self, job: &JobName) -> Arc<SqsJobQueue> {
        let mut jobs = self.jobs();
        match jobs.get(job) {
            Some(queue) => queue.clone(),
            None => {
                let queue = SqsJobQueue::new(&self.context, job.clone());
                jobs.insert(job.clone(), queue.clone());
                queue
            }
        }
    }

    /// Applies `act` to the receipts of each job, several jobs concurrently.
    async fn with_receipts<F>(
        &self,
        receipts: Vec<Receipt>,
        act: impl Fn(Arc<SqsJobQueue>, Vec<Receipt>) -> F,
    ) -> Result<(), QueueError>
    where
        F: Future<Output = Result<(), QueueError>>,
    {
        let mut by_job: BTreeMap<JobName, Vec<Receipt>> = BTreeMap::new();
        for receipt in receipts {
            by_job
                .entry(receipt.job().clone())
                .or_default()
                .push(receipt);
        }
        let calls = by_job.into_iter();
        let calls = calls.map(|(job, receipts)| act(self.job(&job), receipts));
        let calls: Vec<_> = calls.collect();
        let results = stream::iter(calls).buffer_unordered(QUEUES_AT_ONCE);
        let results: Vec<_> = results.collect().await;
        results.into_iter().collect()
    }
}

impl Drop for SqsQueue {
    fn drop(&mut self) {
        self.context.request_tasks.stop();
    }
}

impl std::fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = self.context.names.prefix();
        f.debug_struct("SqsQueue").field("prefix", &prefix).finish()
    }
}

#[async_trait]
impl TaskQueue for SqsQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        let queue = self.job(job);
        let request_tasks = &self.context.request_tasks;
        let ensured = queue
            .levels
            .iter()
            .map(|level| level.queue.ensure(request_tasks));
        join_all(ensured).await.into_iter().collect()
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        let queue = self.job(job);
        let removed = queue.levels.iter().map(|level| remove(&level.queue));
        let removed: Result<(), _> = join_all(removed).await.into_iter().collect();
        if removed.is_ok() {
            self.jobs().remove(job);
        }
        removed
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        let count = messages.len();
        let mut by_queue: BTreeMap<(JobName, usize), (Vec<usize>, Vec<TaskRef>)> = BTreeMap::new();
        for (index, message) in messages.into_iter().enumerate() {
            let level = self.job(&message.job).level_of(&message);
            let group = by_queue.entry((message.job.clone(), level)).or_default();
            group.0.push(index);
            group.1.push(message);
        }
        let sends = by_queue
            .into_iter()
            .map(|((job, level), (indexes, tasks))| {
                let queue = self.job(&job);
                async move { (indexes, queue.send(level, &tasks).await) }
            });
        let sends: Vec<_> = sends.collect();
        let mut sending = stream::iter(sends).buffer_unordered(QUEUES_AT_ONCE);
        let unanswered = || QueueError::Unavailable("the request broke off".into());
        let mut results: Vec<_> = (0..count).map(|_| Err(unanswered())).collect();
        while let Some((indexes, sent)) = sending.next().await {
            for (index, result) in indexes.into_iter().zip(sent) {
                results[index] = result;
            }
        }
        results
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.job(job).receive(max, wait).await
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        let act = |queue: Arc<SqsJobQueue>, receipts: Vec<Receipt>| async move {
            queue.ack(receipts.iter()).await
        };
        self.with_receipts(receipts, act).await
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        let act = |queue: Arc<SqsJobQueue>, receipts: Vec<Receipt>| async move {
            let returned = queue.nack(receipts.iter(), delay).await;
            // A running poll without a receiver may receive these messages. It returns them at once, but a process that
            // ends before that would leave them invisible for the whole timeout.
            if delay.is_zero() {
                let _ = timeout(QUIET_MAX, queue.receive_buffer.wait_until_quiet()).await;
            }
            returned
        };
        self.with_receipts(receipts, act).await
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        let act = |queue: Arc<SqsJobQueue>, receipts: Vec<Receipt>| async move {
            queue.extend(receipts.iter()).await
        };
        self.with_receipts(receipts, act).await
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        let queue = self.job(job);
        let depths = queue.levels.iter().map(|level| depth(&level.queue));
        let mut sum = Depth::default();
        for depth in join_all(depths).await {
            let depth = depth?;
            sum.visible += depth.visible;
            sum.in_flight += depth.in_flight;
        }
        Ok(sum)
    }

    fn visibility_timeout(&self) -> Duration {
        self.context.visibility_timeout
    }
}

pub(crate) async fn remove(queue: &ManagedQueue) -> Result<(), QueueError> {
    let job = queue.job.as_ref();
    let removed = async {
        match queue.owner().await? {
            QueueOwner::ThisDeployment(url) => queue.sqs.delete_queue(job, &url).await,
            // This deployment has no such queue.
            QueueOwner::OtherDeployment(_) => Ok(()),
        }
    };
    let removed = removed.await;
    queue.forget();
    match removed {
        Err(failure) if failure.class != Class::Missing => Err(queue.error(&failure)),
        _ => Ok(()),
    }
}

/// Counts messages, not references: a packed message counts once.
async fn depth(queue: &ManagedQueue) -> Result<Depth, QueueError> {
    use QueueAttributeName::{
        ApproximateNumberOfMessages as Visible, ApproximateNumberOfMessagesDelayed as Delayed,
        ApproximateNumberOfMessagesNotVisible as NotVisible,
    };
    let names = [Visible, NotVisible, Delayed];
    let url = queue.url().await?;
    let attributes = queue.sqs.attributes(queue.job.as_ref(), &url, &names);
    let attributes = attributes.await.map_err(|failure| queue.error(&failure))?;
    let [visible, not_visible, delayed] = names.map(|name| {
        let text = attributes.get(&name);
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    });
    Ok(Depth {
        visible,
        in_flight: not_visible + delayed,
    })
}
