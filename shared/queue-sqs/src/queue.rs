//! The queue seam over the queues of all jobs.

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
    job_queue::{Common, JobQueue},
    name::Names,
    options::{OpenError, SqsOptions},
    place::{Place, Whose},
    service::Service,
};

/// Queues of one call that are served at once.
const QUEUES_AT_ONCE: usize = 32;

/// A poll that has taken none of what was just given back by then hardly will.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// One queue of SQS per job. Clones of the `Arc` share what they know; requests under way end with the last one.
pub struct SqsQueue {
    common: Arc<Common>,
    /// Sorted, so that whoever walks over all jobs does it in the same order each time.
    jobs: Mutex<BTreeMap<JobName, Arc<JobQueue>>>,
}

impl SqsQueue {
    /// Uses a ready client, whose endpoint, credentials and retries are its owner's business. Of `options.aws`, only
    /// the timeout is used, for long polls.
    pub fn from_client(
        client: Client,
        options: SqsOptions,
        meter: Meter,
    ) -> Result<Arc<Self>, OpenError> {
        let names = Names::new(&options.prefix)?;
        let visibility_s = options.visibility_s()?;
        let service = Arc::new(Service::new(client, meter, options.aws.timeout));
        Ok(Arc::new(Self {
            common: Common::new(service, names, visibility_s, options.priority_queues),
            jobs: Mutex::default(),
        }))
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobName, Arc<JobQueue>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn job(&self, job: &JobName) -> Arc<JobQueue> {
        let mut jobs = self.jobs();
        match jobs.get(job) {
            Some(queue) => queue.clone(),
            None => {
                let queue = JobQueue::new(&self.common, job.clone());
                jobs.insert(job.clone(), queue.clone());
                queue
            }
        }
    }

    /// Does something with the receipts of each job, several jobs at once.
    async fn with_receipts<F>(
        &self,
        receipts: Vec<Receipt>,
        act: impl Fn(Arc<JobQueue>, Vec<Receipt>) -> F,
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
        let acts = by_job.into_iter();
        let acts = acts.map(|(job, receipts)| act(self.job(&job), receipts));
        let acts: Vec<_> = acts.collect();
        let results = stream::iter(acts).buffer_unordered(QUEUES_AT_ONCE);
        let results: Vec<_> = results.collect().await;
        results.into_iter().collect()
    }
}

impl Drop for SqsQueue {
    fn drop(&mut self) {
        self.common.crew.stop();
    }
}

impl std::fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = self.common.names.prefix();
        f.debug_struct("SqsQueue").field("prefix", &prefix).finish()
    }
}

#[async_trait]
impl TaskQueue for SqsQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        let queue = self.job(job);
        let crew = &self.common.crew;
        let ensured = queue.levels.iter().map(|level| level.place.ensure(crew));
        join_all(ensured).await.into_iter().collect()
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        let queue = self.job(job);
        let removed = queue.levels.iter().map(|level| remove(&level.place));
        let removed: Result<(), _> = join_all(removed).await.into_iter().collect();
        if removed.is_ok() {
            self.jobs().remove(job);
        }
        removed
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        let count = messages.len();
        let mut by_queue: BTreeMap<(JobName, usize), (Vec<usize>, Vec<TaskRef>)> = BTreeMap::new();
        for (place, message) in messages.into_iter().enumerate() {
            let level = self.job(&message.job).level_of(&message);
            let group = by_queue.entry((message.job.clone(), level)).or_default();
            group.0.push(place);
            group.1.push(message);
        }
        let sends = by_queue.into_iter().map(|((job, level), (places, tasks))| {
            let queue = self.job(&job);
            async move { (places, queue.send(level, &tasks).await) }
        });
        let sends: Vec<_> = sends.collect();
        let mut sent = stream::iter(sends).buffer_unordered(QUEUES_AT_ONCE);
        let lost = || QueueError::Unavailable("the request broke off".into());
        let mut results: Vec<_> = (0..count).map(|_| Err(lost())).collect();
        while let Some((places, answers)) = sent.next().await {
            for (place, answer) in places.into_iter().zip(answers) {
                results[place] = answer;
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
        let act = |queue: Arc<JobQueue>, receipts: Vec<Receipt>| async move {
            queue.ack(receipts.iter()).await
        };
        self.with_receipts(receipts, act).await
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        let act = |queue: Arc<JobQueue>, receipts: Vec<Receipt>| async move {
            let returned = queue.nack(receipts.iter(), delay).await;
            // A poll of ours that nobody waits for any more may take just these. It gives them back at once; a process
            // that ended before it would leave them invisible for the whole timeout.
            if delay.is_zero() {
                let _ = timeout(QUIET_MAX, queue.shelf.is_quiet()).await;
            }
            returned
        };
        self.with_receipts(receipts, act).await
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        let act = |queue: Arc<JobQueue>, receipts: Vec<Receipt>| async move {
            queue.extend(receipts.iter()).await
        };
        self.with_receipts(receipts, act).await
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        let queue = self.job(job);
        let depths = queue.levels.iter().map(|level| depth(&level.place));
        let mut sum = Depth::default();
        for depth in join_all(depths).await {
            let depth = depth?;
            sum.visible += depth.visible;
            sum.in_flight += depth.in_flight;
        }
        Ok(sum)
    }

    fn visibility_timeout(&self) -> Duration {
        self.common.visibility_timeout
    }
}

pub(crate) async fn remove(place: &Place) -> Result<(), QueueError> {
    let job = place.job.as_ref();
    let removed = async {
        match place.whose().await? {
            Whose::Ours(url) => place.service.drop_queue(job, &url).await,
            // There is none of ours.
            Whose::Others(_) => Ok(()),
        }
    };
    let removed = removed.await;
    place.forget();
    match removed {
        Err(failure) if failure.class != Class::Missing => Err(place.error(&failure)),
        _ => Ok(()),
    }
}

/// Messages, not references: a packed message counts once.
async fn depth(place: &Place) -> Result<Depth, QueueError> {
    use QueueAttributeName::{
        ApproximateNumberOfMessages as Visible, ApproximateNumberOfMessagesDelayed as Delayed,
        ApproximateNumberOfMessagesNotVisible as NotVisible,
    };
    let names = [Visible, NotVisible, Delayed];
    let url = place.url().await?;
    let attributes = place.service.attributes(place.job.as_ref(), &url, &names);
    let attributes = attributes.await.map_err(|failure| place.error(&failure))?;
    let [visible, not_visible, delayed] = names.map(|name| {
        let text = attributes.get(&name);
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    });
    Ok(Depth {
        visible,
        in_flight: not_visible + delayed,
    })
}
