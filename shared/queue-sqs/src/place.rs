//! One queue of SQS: where it is, and making it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aws_sdk_sqs::types::QueueAttributeName;
use dueline_aws::{Class, Failure};
use dueline_domain::JobName;
use dueline_ports::QueueError;
use tokio::time::{Instant, sleep};

use crate::{crew::Crew, service::Service};

/// A queue may be unknown for a second after it was made; this is twice that.
const YOUTH: Duration = Duration::from_secs(2);
/// Waits between attempts to make a queue whose name was deleted within the last minute.
const PATIENCE_S: [u64; 8] = [1, 2, 4, 8, 15, 15, 15, 15];

/// What a queue should be like.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) attributes: BTreeMap<QueueAttributeName, String>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// One queue, known by name; its URL is looked up once.
pub(crate) struct Place {
    pub(crate) service: Arc<Service>,
    /// Whose queue; none for the set-aside queue.
    pub(crate) job: Option<JobName>,
    pub(crate) name: String,
    pub(crate) wanted: Wanted,
    known: RwLock<Option<Known>>,
    /// Being made in the background.
    making: AtomicBool,
}

#[derive(Clone)]
struct Known {
    url: Arc<str>,
    made_at: Option<Instant>,
}

impl Place {
    pub(crate) fn new(
        service: Arc<Service>,
        job: Option<JobName>,
        name: String,
        wanted: Wanted,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            job,
            name,
            wanted,
            known: RwLock::default(),
            making: AtomicBool::new(false),
        })
    }

    fn known(&self) -> Option<Known> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    fn know(&self, known: Option<Known>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    pub(crate) fn forget(&self) {
        self.know(None);
    }

    /// The URL, looked up when it is not known.
    pub(crate) async fn url(&self) -> Result<Arc<str>, QueueError> {
        self.look_up().await.map_err(|failure| self.error(&failure))
    }

    pub(crate) async fn look_up(&self) -> Result<Arc<str>, Failure> {
        if let Some(known) = self.known() {
            return Ok(known.url);
        }
        let url = self.service.url(self.job.as_ref(), &self.name).await?;
        let known = Known {
            url: url.clone(),
            made_at: None,
        };
        self.know(Some(known));
        Ok(url)
    }

    /// Whether the queue was made a moment ago, so that not every server of SQS may know it yet.
    pub(crate) fn is_young(&self) -> bool {
        let made_at = self.known().and_then(|known| known.made_at);
        made_at.is_some_and(|at| at.elapsed() < YOUTH)
    }

    /// What a failed call on this queue means. A URL that leads nowhere is forgotten.
    pub(crate) fn error(&self, failure: &Failure) -> QueueError {
        match failure.class {
            Class::Throttled => QueueError::Throttled,
            Class::Missing if self.is_young() => {
                QueueError::Unavailable("the queue was made a moment ago".into())
            }
            Class::Missing => {
                self.forget();
                match &self.job {
                    Some(job) => QueueError::NotFound(job.clone()),
                    None => QueueError::Unavailable(failure.message.clone()),
                }
            }
            Class::Invalid => QueueError::Invalid(failure.message.clone()),
            // Permissions can be mended while the program runs; the call itself is right.
            _ => QueueError::Unavailable(failure.message.clone()),
        }
    }

    /// Makes the queue if there is none. A name that was deleted within the last minute cannot be used yet: then the
    /// queue is made in the background, and this is [`QueueError::Throttled`] until it is there.
    pub(crate) async fn ensure(self: &Arc<Self>, crew: &Crew) -> Result<(), QueueError> {
        if self.known().is_some() {
            return Ok(());
        }
        if self.making.load(Ordering::Acquire) {
            return Err(QueueError::Throttled);
        }
        // Looked up first: the usual case costs one call, and needs no permission to make queues.
        match self.look_up().await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.class == Class::Missing => {}
            Err(failure) => return Err(self.error(&failure)),
        }
        match self.make().await {
            Ok(()) => Ok(()),
            Err(failure) if failure.class == Class::Throttled => {
                if !self.making.swap(true, Ordering::AcqRel) {
                    tracing::info!(queue = self.name, why = %failure.message, "the queue is made as soon as SQS allows it");
                    let making = Making(self.clone());
                    crew.spawn(async move { making.0.make_patiently().await });
                }
                Err(QueueError::Throttled)
            }
            Err(failure) => Err(self.error(&failure)),
        }
    }

    async fn make(&self) -> Result<(), Failure> {
        let Wanted { attributes, tags } = &self.wanted;
        let job = self.job.as_ref();
        let made = self.service.create(job, &self.name, attributes, tags).await;
        match made {
            Ok(url) => {
                let made_at = Some(Instant::now());
                self.know(Some(Known { url, made_at }));
                Ok(())
            }
            // Somebody else made it at the same time, with other attributes.
            Err(failure) if failure.class == Class::InUse => self.look_up().await.map(|_| ()),
            Err(failure) => Err(failure),
        }
    }

    async fn make_patiently(&self) {
        for wait_s in PATIENCE_S {
            sleep(Duration::from_secs(wait_s)).await;
            match self.make().await {
                Ok(()) => return,
                Err(failure) if failure.class.is_retryable() => {}
                Err(failure) => {
                    tracing::warn!(queue = self.name, why = %failure.message, "failed to make a queue");
                    return;
                }
            }
        }
        tracing::warn!(queue = self.name, "gave up making a queue for now");
    }
}

/// Says that a queue is being made until that has ended, however it ends.
struct Making(Arc<Place>);

impl Drop for Making {
    fn drop(&mut self) {
        self.0.making.store(false, Ordering::Release);
    }
}
