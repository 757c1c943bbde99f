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

use crate::{crew::Crew, job_queue::TAG_PREFIX, service::Service};

/// A queue may be unknown for a second after it was made; this is twice that.
const YOUTH: Duration = Duration::from_secs(2);
/// Waits between attempts to make a queue whose name was deleted within the last minute.
const PATIENCE_S: [u64; 8] = [1, 2, 4, 8, 15, 15, 15, 15];

/// A queue of somebody else is looked at again after this: it may be gone, and the name free.
const OTHERS_FOR: Duration = Duration::from_secs(60);

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
    standing: Standing,
}

/// What is known about whose queue it is.
#[derive(Clone)]
enum Standing {
    /// Its tags were not read yet.
    Unasked,
    /// We made it, or no tag says that somebody else did.
    Ours,
    /// It belongs to the deployment with this prefix.
    Others { owner: Arc<str>, until: Instant },
}

/// Whose queue there is under a name.
pub(crate) enum Whose {
    /// Ours, at this URL.
    Ours(Arc<str>),
    /// It belongs to the deployment with this prefix.
    Others(Arc<str>),
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

    /// The URL of our queue, looked up when it is not known.
    pub(crate) async fn url(&self) -> Result<Arc<str>, QueueError> {
        self.look_up().await.map_err(|failure| self.error(&failure))
    }

    /// As [`Place::url`]. A queue of another deployment is as good as a wrong call: what is sent there would be set aside
    /// by the other, and what is received there would be lost to it.
    pub(crate) async fn look_up(&self) -> Result<Arc<str>, Failure> {
        match self.whose().await? {
            Whose::Ours(url) => Ok(url),
            Whose::Others(owner) => Err(self.taken(&owner)),
        }
    }

    /// The URL of whatever queue has the name, looked up when it is not known.
    pub(crate) async fn find(&self) -> Result<Arc<str>, Failure> {
        Ok(self.found().await?.url)
    }

    async fn found(&self) -> Result<Known, Failure> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let url = self.service.url(self.job.as_ref(), &self.name).await?;
        let known = Known {
            url,
            made_at: None,
            standing: Standing::Unasked,
        };
        self.know(Some(known.clone()));
        Ok(known)
    }

    /// Finds the queue and, once, reads its tags: a prefix that begins with another one and a hyphen makes equal names.
    pub(crate) async fn whose(&self) -> Result<Whose, Failure> {
        let mut known = self.found().await?;
        match known.standing {
            Standing::Ours => return Ok(Whose::Ours(known.url)),
            Standing::Others { owner, until } if Instant::now() < until => {
                return Ok(Whose::Others(owner));
            }
            _ => {}
        }
        let owner: Option<Arc<str>> = match self.service.tags(self.job.as_ref(), &known.url).await {
            Ok(tags) => self.other_owner(&tags).map(Arc::from),
            Err(failure) => match failure.class {
                Class::Throttled | Class::NotSent | Class::Unknown | Class::Missing => {
                    return Err(failure);
                }
                // An engine without tags, or a role that may not read them: the queue is taken for ours.
                _ => {
                    tracing::debug!(queue = self.name, why = %failure.message, "failed to read the tags of a queue");
                    None
                }
            },
        };
        let Some(owner) = owner else {
            let url = known.url.clone();
            known.standing = Standing::Ours;
            self.know(Some(known));
            return Ok(Whose::Ours(url));
        };
        tracing::warn!(queue = self.name, %owner, "a queue belongs to another deployment and is left alone");
        known.standing = Standing::Others {
            owner: owner.clone(),
            until: Instant::now() + OTHERS_FOR,
        };
        self.know(Some(known));
        Ok(Whose::Others(owner))
    }

    /// The prefix of the other deployment that a queue with these tags belongs to. One without our tag may be ours.
    pub(crate) fn other_owner<'a>(&self, tags: &'a BTreeMap<String, String>) -> Option<&'a str> {
        let owner = tags.get(TAG_PREFIX).filter(|owner| !owner.is_empty());
        owner
            .filter(|owner| self.wanted.tags.get(TAG_PREFIX) != Some(owner))
            .map(String::as_str)
    }

    /// Why a queue of another deployment is not used.
    pub(crate) fn taken(&self, owner: &str) -> Failure {
        Failure {
            class: Class::Invalid,
            message: format!(
                "queue '{}' belongs to the deployment with the prefix '{owner}'; give one of the two another prefix",
                self.name
            )
            .into(),
        }
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

    /// Makes the queue if there is none. One of another deployment is [`QueueError::Invalid`]. A name that was deleted
    /// within the last minute cannot be used yet: then the queue is made in the background, and this is
    /// [`QueueError::Throttled`] until it is there.
    pub(crate) async fn ensure(self: &Arc<Self>, crew: &Crew) -> Result<(), QueueError> {
        let is_ours = |known: &Known| matches!(known.standing, Standing::Ours);
        if self.known().as_ref().is_some_and(is_ours) {
            return Ok(());
        }
        if self.making.load(Ordering::Acquire) {
            return Err(QueueError::Throttled);
        }
        // Looked up first: the usual case costs two calls, and needs no permission to make queues.
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
                let standing = Standing::Ours;
                self.know(Some(Known {
                    url,
                    made_at,
                    standing,
                }));
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
