//! Administration: describes, fixes and deletes the queues of a deployment.

use std::{collections::BTreeMap, sync::Arc};

use aws_sdk_sqs::types::QueueAttributeName;
use dueline_aws::{Class, Failure};
use dueline_domain::JobName;
use dueline_ports::QueueError;

use crate::{
    job_queue::{SqsJobQueue, TAG_PREFIX},
    managed_queue::ManagedQueue,
    queue::SqsQueue,
};

/// A queue as SQS describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The name of the queue.
    pub name: String,
    /// Whether a queue of that name exists.
    pub exists: bool,
    /// The attributes, under SQS's own names.
    pub attributes: BTreeMap<String, String>,
    /// The tags of the queue.
    pub tags: BTreeMap<String, String>,
    /// Attributes and tags that differ from those this program would set.
    pub drift: Vec<Drift>,
}

impl QueueInfo {
    /// The prefix of the other deployment that owns the queue by its tag, if any. Such a queue is neither used nor
    /// changed.
    pub fn other_owner(&self) -> Option<&str> {
        let mut drift = self.drift.iter();
        let tag = drift.find(|drift| drift.name == TAG_PREFIX)?;
        tag.actual.as_deref().filter(|owner| !owner.is_empty())
    }
}

/// An attribute or tag of a queue whose value differs from the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The name of the attribute or tag.
    pub name: String,
    /// The actual value, if it is set.
    pub actual: Option<String>,
    /// The expected value.
    pub expected: String,
}

impl SqsQueue {
    /// The names of a job's queues: one, or one per priority level, the most urgent first.
    pub fn queue_names(&self, job: &JobName) -> Vec<String> {
        let queue = SqsJobQueue::new(self.context(), job.clone());
        let levels = queue.levels.iter();
        levels.map(|level| level.queue.name.clone()).collect()
    }

    /// The name of the queue that receives messages that Dueline cannot read.
    pub fn quarantine_name(&self) -> &str {
        &self.context().quarantine.name
    }

    /// The names of all queues that begin with this prefix, the quarantine queue included. Queues of a deployment whose
    /// prefix begins with this one are listed too; [`QueueInfo::tags`] distinguishes them.
    pub async fn list(&self) -> Result<Vec<String>, QueueError> {
        let urls = self.urls().await?;
        Ok(urls.into_keys().collect())
    }

    /// Describes the queues of a job. This reads and changes nothing.
    pub async fn describe(&self, job: &JobName) -> Result<Vec<QueueInfo>, QueueError> {
        let queue = self.job(job);
        let mut infos = Vec::with_capacity(queue.levels.len());
        for level in &queue.levels {
            infos.push(describe(&level.queue).await?);
        }
        Ok(infos)
    }

    /// Describes the quarantine queue.
    pub async fn describe_quarantine(&self) -> Result<QueueInfo, QueueError> {
        describe(&self.context().quarantine).await
    }

    /// Creates the quarantine queue if it does not exist. Otherwise it is created when it is first needed.
    pub async fn ensure_quarantine(&self) -> Result<(), QueueError> {
        let context = self.context();
        context.quarantine.ensure(&context.request_tasks).await
    }

    /// Sets the expected attributes and tags on existing queues of a job. Returns what was changed. A queue of another
    /// deployment is [`QueueError::Invalid`] and is not changed.
    pub async fn fix(&self, job: &JobName) -> Result<Vec<Drift>, QueueError> {
        let queue = self.job(job);
        let mut fixed = Vec::new();
        for level in &queue.levels {
            fixed.extend(fix(&level.queue).await?);
        }
        Ok(fixed)
    }

    /// Sets the expected attributes and tags on the quarantine queue. Returns what was changed.
    pub async fn fix_quarantine(&self) -> Result<Vec<Drift>, QueueError> {
        fix(&self.context().quarantine).await
    }

    /// Deletes all queues that carry this prefix in name and tag. Returns their names.
    pub async fn remove_all(&self) -> Result<Vec<String>, QueueError> {
        let context = self.context();
        let error = |failure| context.quarantine.error(&failure);
        let mut removed = Vec::new();
        for (name, url) in self.own_queues().await? {
            match context.sqs.delete_queue(None, &url).await {
                Ok(()) => removed.push(name),
                Err(failure) if failure.class == Class::Missing => {}
                Err(failure) => return Err(error(failure)),
            }
        }
        self.jobs().clear();
        context.quarantine.forget();
        Ok(removed)
    }

    /// The queues that [`SqsQueue::remove_all`] would delete.
    pub async fn list_own(&self) -> Result<Vec<String>, QueueError> {
        let own = self.own_queues().await?;
        Ok(own.into_iter().map(|(name, _)| name).collect())
    }

    /// Names and URLs of the queues with the tag of this deployment.
    async fn own_queues(&self) -> Result<Vec<(String, Arc<str>)>, QueueError> {
        let context = self.context();
        let mut own = Vec::new();
        for (name, url) in self.urls().await? {
            match context.sqs.tags(None, &url).await {
                Ok(tags)
                    if tags
                        .get(TAG_PREFIX)
                        .is_some_and(|tag| tag == context.names.prefix()) =>
                {
                    own.push((name, url));
                }
                Ok(_) => {}
                Err(failure) if failure.class == Class::Missing => {}
                Err(failure) => return Err(context.quarantine.error(&failure)),
            }
        }
        Ok(own)
    }

    /// URLs by name.
    async fn urls(&self) -> Result<BTreeMap<String, Arc<str>>, QueueError> {
        let context = self.context();
        let name_prefix = context.names.name_prefix();
        let mut found = BTreeMap::new();
        let mut token = None;
        loop {
            let page = context.sqs.page(&name_prefix, token).await;
            let (urls, next) = page.map_err(|failure| context.quarantine.error(&failure))?;
            for url in urls {
                let name = url.rsplit('/').next().unwrap_or_default();
                if name.starts_with(&name_prefix) {
                    found.insert(name.to_owned(), Arc::from(url.as_str()));
                }
            }
            match next {
                Some(next) => token = Some(next),
                None => return Ok(found),
            }
        }
    }
}

async fn describe(queue: &ManagedQueue) -> Result<QueueInfo, QueueError> {
    let mut info = QueueInfo {
        name: queue.name.clone(),
        exists: false,
        attributes: BTreeMap::new(),
        tags: BTreeMap::new(),
        drift: Vec::new(),
    };
    let job = queue.job.as_ref();
    let read = async {
        let url = queue.any_url().await?;
        let attributes = queue.sqs.attributes(job, &url, &[QueueAttributeName::All]);
        Ok::<_, Failure>((attributes.await?, queue.sqs.tags(job, &url).await?))
    };
    let (attributes, tags) = match read.await {
        Ok(read) => read,
        Err(failure) if failure.class == Class::Missing => {
            queue.forget();
            return Ok(info);
        }
        Err(failure) => return Err(queue.error(&failure)),
    };
    info.exists = true;
    info.tags = tags;
    let texts = attributes
        .into_iter()
        .map(|(name, text)| (name.to_string(), text));
    info.attributes = texts.collect();
    let attributes = queue.config.attributes.iter();
    let attributes = attributes.map(|(name, text)| (name.to_string(), text, &info.attributes));
    let tags = queue.config.tags.iter();
    let tags = tags.map(|(name, text)| (name.clone(), text, &info.tags));
    let drift = attributes
        .chain(tags)
        .filter_map(|(name, expected, actual)| {
            let actual = actual.get(&name).cloned();
            let expected = expected.clone();
            (actual.as_ref() != Some(&expected)).then_some(Drift {
                name,
                actual,
                expected,
            })
        });
    info.drift = drift.collect();
    Ok(info)
}

async fn fix(queue: &ManagedQueue) -> Result<Vec<Drift>, QueueError> {
    let info = describe(queue).await?;
    if !info.exists || info.drift.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(owner) = info.other_owner() {
        return Err(queue.error(&queue.owner_conflict(owner)));
    }
    let job = queue.job.as_ref();
    let fixed = async {
        let url = queue.any_url().await?;
        let has_drift = |name: &str| info.drift.iter().any(|drift| drift.name == name);
        let mut attributes = queue.config.attributes.clone();
        attributes.retain(|name, _| has_drift(name.as_str()));
        let mut tags = queue.config.tags.clone();
        tags.retain(|name, _| has_drift(name));
        if !attributes.is_empty() {
            queue.sqs.set_attributes(job, &url, attributes).await?;
        }
        if !tags.is_empty() {
            queue.sqs.set_tags(job, &url, tags).await?;
        }
        Ok::<_, Failure>(())
    };
    fixed.await.map_err(|failure| queue.error(&failure))?;
    Ok(info.drift)
}
