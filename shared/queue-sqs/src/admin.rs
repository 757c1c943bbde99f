//! For those who set deployments up, look after them and remove them.

use std::{collections::BTreeMap, sync::Arc};

use aws_sdk_sqs::types::QueueAttributeName;
use dueline_aws::{Class, Failure};
use dueline_domain::JobName;
use dueline_ports::QueueError;

use crate::{
    job_queue::{JobQueue, TAG_PREFIX},
    place::Place,
    queue::SqsQueue,
};

/// A queue as SQS describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Whether there is one of that name.
    pub exists: bool,
    /// Its attributes, under SQS's own names.
    pub attributes: BTreeMap<String, String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Where it differs from what this program would make.
    pub drift: Vec<Drift>,
}

impl QueueInfo {
    /// The prefix of the other deployment that the queue belongs to by its tag, if it does. Then it is neither used nor
    /// changed.
    pub fn other_owner(&self) -> Option<&str> {
        let mut drift = self.drift.iter();
        let tag = drift.find(|drift| drift.what == TAG_PREFIX)?;
        tag.is.as_deref().filter(|owner| !owner.is_empty())
    }
}

/// An attribute or tag of a queue that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The attribute or tag.
    pub what: String,
    /// Its value, if it has one.
    pub is: Option<String>,
    /// The value it should have.
    pub wanted: String,
}

impl SqsQueue {
    /// The names of the queues of a job: one, or one for each priority level, the most urgent first.
    pub fn queue_names(&self, job: &JobName) -> Vec<String> {
        let queue = JobQueue::new(self.common(), job.clone());
        let levels = queue.levels.iter();
        levels.map(|level| level.place.name.clone()).collect()
    }

    /// The name of the queue that takes what is none of ours.
    pub fn set_aside_name(&self) -> &str {
        &self.common().set_aside.name
    }

    /// The names of all queues that begin with our prefix, the set-aside queue included. Those of a deployment whose
    /// prefix begins with ours are among them; [`QueueInfo::tags`] tells them apart.
    pub async fn list(&self) -> Result<Vec<String>, QueueError> {
        let urls = self.urls().await?;
        Ok(urls.into_keys().collect())
    }

    /// What the queues of a job are like. This reads and changes nothing.
    pub async fn describe(&self, job: &JobName) -> Result<Vec<QueueInfo>, QueueError> {
        let queue = self.job(job);
        let mut infos = Vec::with_capacity(queue.levels.len());
        for level in &queue.levels {
            infos.push(describe(&level.place).await?);
        }
        Ok(infos)
    }

    /// What the set-aside queue is like.
    pub async fn describe_set_aside(&self) -> Result<QueueInfo, QueueError> {
        describe(&self.common().set_aside).await
    }

    /// Makes the queue that takes what is none of ours, if there is none. It is made on demand otherwise.
    pub async fn ensure_set_aside(&self) -> Result<(), QueueError> {
        let common = self.common();
        common.set_aside.ensure(&common.crew).await
    }

    /// Gives existing queues of a job the attributes and tags they should have. Answers what was changed. A queue of
    /// another deployment is [`QueueError::Invalid`], and is left as it is.
    pub async fn mend(&self, job: &JobName) -> Result<Vec<Drift>, QueueError> {
        let queue = self.job(job);
        let mut mended = Vec::new();
        for level in &queue.levels {
            mended.extend(mend(&level.place).await?);
        }
        Ok(mended)
    }

    /// Gives the set-aside queue the attributes and tags it should have. Answers what was changed.
    pub async fn mend_set_aside(&self) -> Result<Vec<Drift>, QueueError> {
        mend(&self.common().set_aside).await
    }

    /// Removes all queues that carry our prefix in name and tag, and answers their names.
    pub async fn remove_all(&self) -> Result<Vec<String>, QueueError> {
        let common = self.common();
        let error = |failure| common.set_aside.error(&failure);
        let mut removed = Vec::new();
        for (name, url) in self.own().await? {
            match common.service.drop_queue(None, &url).await {
                Ok(()) => removed.push(name),
                Err(failure) if failure.class == Class::Missing => {}
                Err(failure) => return Err(error(failure)),
            }
        }
        self.jobs().clear();
        common.set_aside.forget();
        Ok(removed)
    }

    /// The queues that [`SqsQueue::remove_all`] would delete.
    pub async fn list_own(&self) -> Result<Vec<String>, QueueError> {
        let own = self.own().await?;
        Ok(own.into_iter().map(|(name, _)| name).collect())
    }

    /// Queues with the tag of this deployment, with their URLs.
    async fn own(&self) -> Result<Vec<(String, Arc<str>)>, QueueError> {
        let common = self.common();
        let mut own = Vec::new();
        for (name, url) in self.urls().await? {
            match common.service.tags(None, &url).await {
                Ok(tags)
                    if tags
                        .get(TAG_PREFIX)
                        .is_some_and(|tag| tag == common.names.prefix()) =>
                {
                    own.push((name, url));
                }
                Ok(_) => {}
                Err(failure) if failure.class == Class::Missing => {}
                Err(failure) => return Err(common.set_aside.error(&failure)),
            }
        }
        Ok(own)
    }

    /// URLs by name.
    async fn urls(&self) -> Result<BTreeMap<String, Arc<str>>, QueueError> {
        let common = self.common();
        let beginning = common.names.beginning();
        let mut found = BTreeMap::new();
        let mut from = None;
        loop {
            let page = common.service.page(&beginning, from).await;
            let (urls, next) = page.map_err(|failure| common.set_aside.error(&failure))?;
            for url in urls {
                let name = url.rsplit('/').next().unwrap_or_default();
                if name.starts_with(&beginning) {
                    found.insert(name.to_owned(), Arc::from(url.as_str()));
                }
            }
            match next {
                Some(next) => from = Some(next),
                None => return Ok(found),
            }
        }
    }
}

async fn describe(place: &Place) -> Result<QueueInfo, QueueError> {
    let mut info = QueueInfo {
        name: place.name.clone(),
        exists: false,
        attributes: BTreeMap::new(),
        tags: BTreeMap::new(),
        drift: Vec::new(),
    };
    let job = place.job.as_ref();
    let read = async {
        let url = place.find().await?;
        let attributes = place
            .service
            .attributes(job, &url, &[QueueAttributeName::All]);
        Ok::<_, Failure>((attributes.await?, place.service.tags(job, &url).await?))
    };
    let (attributes, tags) = match read.await {
        Ok(read) => read,
        Err(failure) if failure.class == Class::Missing => {
            place.forget();
            return Ok(info);
        }
        Err(failure) => return Err(place.error(&failure)),
    };
    info.exists = true;
    info.tags = tags;
    let texts = attributes
        .into_iter()
        .map(|(name, text)| (name.to_string(), text));
    info.attributes = texts.collect();
    let wanted = place.wanted.attributes.iter();
    let wanted = wanted.map(|(name, text)| (name.to_string(), text, &info.attributes));
    let wanted_tags = place.wanted.tags.iter();
    let wanted_tags = wanted_tags.map(|(name, text)| (name.clone(), text, &info.tags));
    let drift = wanted
        .chain(wanted_tags)
        .filter_map(|(what, wanted, actual)| {
            let is = actual.get(&what).cloned();
            let wanted = wanted.clone();
            (is.as_ref() != Some(&wanted)).then_some(Drift { what, is, wanted })
        });
    info.drift = drift.collect();
    Ok(info)
}

async fn mend(place: &Place) -> Result<Vec<Drift>, QueueError> {
    let info = describe(place).await?;
    if !info.exists || info.drift.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(owner) = info.other_owner() {
        return Err(place.error(&place.taken(owner)));
    }
    let job = place.job.as_ref();
    let mended = async {
        let url = place.find().await?;
        let is_off = |what: &str| info.drift.iter().any(|drift| drift.what == what);
        let mut attributes = place.wanted.attributes.clone();
        attributes.retain(|name, _| is_off(name.as_str()));
        let mut tags = place.wanted.tags.clone();
        tags.retain(|name, _| is_off(name));
        if !attributes.is_empty() {
            place.service.set_attributes(job, &url, attributes).await?;
        }
        if !tags.is_empty() {
            place.service.set_tags(job, &url, tags).await?;
        }
        Ok::<_, Failure>(())
    };
    mended.await.map_err(|failure| place.error(&failure))?;
    Ok(info.drift)
}
