//! One SQS queue: its URL, its owner, and its creation.

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

use crate::{client::MeteredClient, job_queue::TAG_PREFIX, request_tasks::RequestTasks};

/// Time after creation in which servers of SQS may not know a queue yet: twice the second that SQS documents.
const PROPAGATION_TIME: Duration = Duration::from_secs(2);
/// Delays between attempts to create a queue whose name was deleted within the last minute.
const CREATE_RETRY_DELAYS_S: [u64; 8] = [1, 2, 4, 8, 15, 15, 15, 15];

/// The owner of another deployment's queue is checked again after this: the queue may be gone and the name free.
const OWNER_RECHECK_AFTER: Duration = Duration::from_secs(60);

/// The attributes and tags that a queue should have.
#[derive(Clone, Debug)]
pub(crate) struct QueueConfig {
    pub(crate) attributes: BTreeMap<QueueAttributeName, String>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// One SQS queue, known by name. Its URL is looked up once.
pub(crate) struct ManagedQueue {
    pub(crate) sqs: Arc<MeteredClient>,
    /// The job of the queue; `None` for the quarantine queue.
    pub(crate) job: Option<JobName>,
    pub(crate) name: String,
    pub(crate) config: QueueConfig,
    resolved: RwLock<Option<ResolvedQueue>>,
    /// Whether the queue is being created in the background.
    is_creating: AtomicBool,
}

#[derive(Clone)]
struct ResolvedQueue {
    url: Arc<str>,
    created_at: Option<Instant>,
    owner: OwnerCheck,
}

/// Which deployment owns a queue, as far as this process has checked.
#[derive(Clone)]
enum OwnerCheck {
    /// The tags were not read yet.
    NotChecked,
    /// This process created the queue, or its tags name no other deployment.
    ThisDeployment,
    /// The deployment with this prefix owns the queue.
    OtherDeployment {
        owner: Arc<str>,
        recheck_at: Instant,
    },
}

/// The owner of the queue that has a name.
pub(crate) enum QueueOwner {
    /// This deployment; the queue has this URL.
    ThisDeployment(Arc<str>),
    /// The deployment with this prefix.
    OtherDeployment(Arc<str>),
}

impl ManagedQueue {
    pub(crate) fn new(
        sqs: Arc<MeteredClient>,
        job: Option<JobName>,
        name: String,
        config: QueueConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            sqs,
            job,
            name,
            config,
            resolved: RwLock::default(),
            is_creating: AtomicBool::new(false),
        })
    }

    fn resolved(&self) -> Option<ResolvedQueue> {
        let resolved = self.resolved.read().unwrap_or_else(PoisonError::into_inner);
        resolved.clone()
    }

    fn set_resolved(&self, resolved: Option<ResolvedQueue>) {
        *self
            .resolved
            .write()
            .unwrap_or_else(PoisonError::into_inner) = resolved;
    }

    pub(crate) fn forget(&self) {
        self.set_resolved(None);
    }

    /// As [`ManagedQueue::owned_url`], with the error of the queue seam.
    pub(crate) async fn url(&self) -> Result<Arc<str>, QueueError> {
        self.owned_url()
            .await
            .map_err(|failure| self.error(&failure))
    }

    /// The URL of this deployment's queue, looked up when it is not known. A queue of another deployment is an invalid
    /// call: the other one would quarantine what is sent there, and would miss what is received there.
    pub(crate) async fn owned_url(&self) -> Result<Arc<str>, Failure> {
        match self.owner().await? {
            QueueOwner::ThisDeployment(url) => Ok(url),
            QueueOwner::OtherDeployment(owner) => Err(self.owner_conflict(&owner)),
        }
    }

    /// The URL of the queue that has the name, whichever deployment owns it; looked up when it is not known.
    pub(crate) async fn any_url(&self) -> Result<Arc<str>, Failure> {
        Ok(self.resolve().await?.url)
    }

    async fn resolve(&self) -> Result<ResolvedQueue, Failure> {
        if let Some(resolved) = self.resolved() {
            return Ok(resolved);
        }
        let url = self.sqs.url(self.job.as_ref(), &self.name).await?;
        let resolved = ResolvedQueue {
            url,
            created_at: None,
            owner: OwnerCheck::NotChecked,
        };
        self.set_resolved(Some(resolved.clone()));
        Ok(resolved)
    }

    /// Finds the queue and, once, reads its tags. Two deployments can need the same name when one prefix begins with
    /// the other and a hyphen.
    pub(crate) async fn owner(&self) -> Result<QueueOwner, Failure> {
        let mut resolved = self.resolve().await?;
        match resolved.owner {
            OwnerCheck::ThisDeployment => return Ok(QueueOwner::ThisDeployment(resolved.url)),
            OwnerCheck::OtherDeployment { owner, recheck_at } if Instant::now() < recheck_at => {
                return Ok(QueueOwner::OtherDeployment(owner));
            }
            _ => {}
        }
        let owner: Option<Arc<str>> = match self.sqs.tags(self.job.as_ref(), &resolved.url).await {
            Ok(tags) => self.other_owner(&tags).map(Arc::from),
            Err(failure) => match failure.class {
                Class::Throttled | Class::NotSent | Class::Unknown | Class::Missing => {
                    return Err(failure);
                }
                // The engine has no tags, or the role may not read them: the queue counts as this deployment's own.
                _ => {
                    tracing::debug!(queue = self.name, why = %failure.message, "failed to read the tags of a queue");
                    None
                }
            },
        };
        let Some(owner) = owner else {
            let url = resolved.url.clone();
            resolved.owner = OwnerCheck::ThisDeployment;
            self.set_resolved(Some(resolved));
            return Ok(QueueOwner::ThisDeployment(url));
        };
        tracing::warn!(queue = self.name, %owner, "the queue belongs to another deployment and is not used");
        resolved.owner = OwnerCheck::OtherDeployment {
            owner: owner.clone(),
            recheck_at: Instant::now() + OWNER_RECHECK_AFTER,
        };
        self.set_resolved(Some(resolved));
        Ok(QueueOwner::OtherDeployment(owner))
    }

    /// The prefix of the other deployment that owns a queue with these tags. A queue without the tag counts as our own.
    pub(crate) fn other_owner<'a>(&self, tags: &'a BTreeMap<String, String>) -> Option<&'a str> {
        let owner = tags.get(TAG_PREFIX).filter(|owner| !owner.is_empty());
        owner
            .filter(|owner| self.config.tags.get(TAG_PREFIX) != Some(owner))
            .map(String::as_str)
    }

    /// The failure of a call on a queue of another deployment.
    pub(crate) fn owner_conflict(&self, owner: &str) -> Failure {
        Failure {
            class: Class::Invalid,
            message: format!(
                "queue '{}' belongs to the deployment with the prefix '{owner}'; change the prefix of one of the two deployments",
                self.name
            )
            .into(),
        }
    }

    /// Whether the queue was created so recently that some servers of SQS may not know it yet.
    pub(crate) fn is_recently_created(&self) -> bool {
        let created_at = self.resolved().and_then(|resolved| resolved.created_at);
        created_at.is_some_and(|at| at.elapsed() < PROPAGATION_TIME)
    }

    /// Translates the failure of a call on this queue. The URL of a missing queue is forgotten.
    pub(crate) fn error(&self, failure: &Failure) -> QueueError {
        match failure.class {
            Class::Throttled => QueueError::Throttled,
            Class::Missing if self.is_recently_created() => {
                QueueError::Unavailable("the queue was created a moment ago".into())
            }
            Class::Missing => {
                self.forget();
                match &self.job {
                    Some(job) => QueueError::NotFound(job.clone()),
                    None => QueueError::Unavailable(failure.message.clone()),
                }
            }
            Class::Invalid => QueueError::Invalid(failure.message.clone()),
            // The call is valid, and permissions can be fixed while the program runs.
            _ => QueueError::Unavailable(failure.message.clone()),
        }
    }

    /// Creates the queue if it does not exist. A queue of another deployment is [`QueueError::Invalid`]. A name that
    /// was deleted within the last minute cannot be used yet: the queue is then created in the background, and this
    /// returns [`QueueError::Throttled`] until it exists.
    pub(crate) async fn ensure(
        self: &Arc<Self>,
        request_tasks: &RequestTasks,
    ) -> Result<(), QueueError> {
        let is_own =
            |resolved: &ResolvedQueue| matches!(resolved.owner, OwnerCheck::ThisDeployment);
        if self.resolved().as_ref().is_some_and(is_own) {
            return Ok(());
        }
        if self.is_creating.load(Ordering::Acquire) {
            return Err(QueueError::Throttled);
        }
        // Looking up first costs two calls in the usual case, and needs no permission to create queues.
        match self.owned_url().await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.class == Class::Missing => {}
            Err(failure) => return Err(self.error(&failure)),
        }
        match self.create().await {
            Ok(()) => Ok(()),
            Err(failure) if failure.class == Class::Throttled => {
                if !self.is_creating.swap(true, Ordering::AcqRel) {
                    tracing::info!(queue = self.name, why = %failure.message, "the queue is created as soon as SQS allows it");
                    let guard = CreationGuard(self.clone());
                    request_tasks.spawn(async move { guard.0.create_with_retries().await });
                }
                Err(QueueError::Throttled)
            }
            Err(failure) => Err(self.error(&failure)),
        }
    }

    async fn create(&self) -> Result<(), Failure> {
        let QueueConfig { attributes, tags } = &self.config;
        let job = self.job.as_ref();
        let created = self.sqs.create(job, &self.name, attributes, tags).await;
        match created {
            Ok(url) => {
                let created_at = Some(Instant::now());
                let owner = OwnerCheck::ThisDeployment;
                self.set_resolved(Some(ResolvedQueue {
                    url,
                    created_at,
                    owner,
                }));
                Ok(())
            }
            // Another process created it at the same time, with other attributes.
            Err(failure) if failure.class == Class::InUse => self.owned_url().await.map(|_| ()),
            Err(failure) => Err(failure),
        }
    }

    async fn create_with_retries(&self) {
        for wait_s in CREATE_RETRY_DELAYS_S {
            sleep(Duration::from_secs(wait_s)).await;
            match self.create().await {
                Ok(()) => return,
                Err(failure) if failure.class.is_retryable() => {}
                Err(failure) => {
                    tracing::warn!(queue = self.name, why = %failure.message, "failed to create the queue");
                    return;
                }
            }
        }
        tracing::warn!(
            queue = self.name,
            "gave up creating the queue; the next call tries again"
        );
    }
}

/// Marks the queue as being created until the attempts end, also by a panic or an abort.
struct CreationGuard(Arc<ManagedQueue>);

impl Drop for CreationGuard {
    fn drop(&mut self) {
        self.0.is_creating.store(false, Ordering::Release);
    }
}
