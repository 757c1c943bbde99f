//! Definitions that are made or changed.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_domain::{Job, JobName, Timestamp};
use dueline_ports::{PutJob, StoreError};

use super::{CHANGES, DELETING, Entry, GENERATION, RECORD, SHARDS, VERSION};
use crate::{
    attr::{num, text},
    calls::{Change, Condition, For, Key, TRIES_MAX, Transacted, Write, pause},
    schema,
    store::Inner,
};

/// The write that tells everybody that a definition changed.
pub(super) fn raise() -> Write {
    let key = Key::new(schema::META, schema::META_JOBS);
    let change = Change {
        add: vec![(CHANGES.into(), 1)],
        ..Change::default()
    };
    Write::Update(key, change, None)
}

pub(super) fn key(name: &JobName) -> Key {
    Key::new(schema::JOBS, name.as_str())
}

/// The write of a changed definition, on the condition that nobody changed it meanwhile.
fn changed(
    name: &JobName,
    version: i64,
    set: Vec<(String, AttributeValue)>,
    remove: &[&str],
) -> Write {
    let change = Change {
        set,
        remove: remove.iter().map(|name| (*name).to_owned()).collect(),
        add: vec![(VERSION.into(), 1)],
    };
    let unchanged = Condition::Is(VERSION, num(version));
    Write::Update(key(name), change, Some(unchanged))
}

impl Entry {
    /// The write of a changed definition.
    pub(super) fn changed(&self, set: Vec<(String, AttributeValue)>, remove: &[&str]) -> Write {
        changed(&self.job.name, self.version, set, remove)
    }

    pub(super) fn unchanged(&self) -> Condition {
        Condition::Is(VERSION, num(self.version))
    }

    /// What to store for the definition that follows this one.
    fn record_of(&self, next: &Job) -> (String, AttributeValue) {
        let json = dueline_records::job_to_json_over(next, &self.record);
        (RECORD.into(), text(json))
    }
}

impl Inner {
    pub(crate) async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        for tries in 0..TRIES_MAX {
            let jobs = self.jobs(true).await?;
            let mut job = put.job.clone();
            let write = match jobs.get(&job.name) {
                Some(entry) if put.if_absent && !entry.deleting => return Ok(entry.job.clone()),
                Some(entry) => {
                    job.created_at = entry.job.created_at;
                    job.created_by = entry.job.created_by.clone();
                    job.changed_at = job.changed_at.max(entry.job.changed_at);
                    // Whoever puts a job wants it: a deletion that was left half done is over.
                    entry.changed(vec![entry.record_of(&job)], &[DELETING])
                }
                // A definition that could not be read gives way to one that can; its tasks find it again.
                None if let Some(version) = jobs.unreadable.get(job.name.as_str()) => {
                    let record = (RECORD.into(), text(dueline_records::job_to_json(&job)));
                    changed(&job.name, *version, vec![record], &[DELETING])
                }
                None => {
                    let mut item = key(&job.name).item();
                    item.insert(RECORD.into(), text(dueline_records::job_to_json(&job)));
                    item.insert(GENERATION.into(), text(generation()));
                    item.insert(SHARDS.into(), num(1));
                    item.insert(VERSION.into(), num(1));
                    Write::Put(item, Some(Condition::Absent))
                }
            };
            if self.change_jobs("put_job", write).await? {
                return Ok(Arc::new(job));
            }
            pause(tries).await;
        }
        Err(StoreError::Throttled)
    }

    pub(crate) async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        for tries in 0..TRIES_MAX {
            let jobs = self.jobs(true).await?;
            let entry = jobs.get(name).ok_or_else(|| StoreError::no_job(name))?;
            let job = Job {
                paused,
                changed_at: now.max(entry.job.changed_at),
                ..Job::clone(&entry.job)
            };
            let write = entry.changed(vec![entry.record_of(&job)], &[]);
            if self.change_jobs("pause_job", write).await? {
                return Ok(Arc::new(job));
            }
            pause(tries).await;
        }
        Err(StoreError::Throttled)
    }

    /// Changes a definition and tells everybody, in one step; answers whether the condition held. This process knows
    /// at once.
    pub(super) async fn change_jobs(
        &self,
        operation: &'static str,
        write: Write,
    ) -> Result<bool, StoreError> {
        let of = For::all(operation);
        let outcome = self.table.transact(of, &[write, raise()]).await?;
        let done = matches!(outcome, Transacted::Done);
        if done {
            self.know_anew().await;
        }
        Ok(done)
    }
}

/// Six random characters, one of two billion names. An earlier job of the same name with the same ones would have to
/// be among those that the pruner has not cleared away yet.
fn generation() -> String {
    (0..6)
        .map(|_| fastrand::alphanumeric().to_ascii_lowercase())
        .collect()
}
