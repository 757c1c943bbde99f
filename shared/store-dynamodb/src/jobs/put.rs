//! `put_job` and `pause_job`: create and change definitions.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_domain::{Job, JobName, Timestamp};
use dueline_ports::{PutJob, StoreError};

use super::{CHANGES, DELETING, GENERATION, JobEntry, RECORD, SHARDS, VERSION};
use crate::{
    attr::{num, text},
    calls::{
        CallContext, ItemChange, ItemKey, TRIES_MAX, TransactionOutcome, TransactionWrite,
        WriteCondition, pause,
    },
    schema,
    store::DynamoStore,
};

/// The write that increments the counter of changes, by which all processes notice a changed definition.
pub(super) fn count_change() -> TransactionWrite {
    let key = ItemKey::new(schema::META, schema::META_JOBS);
    let change = ItemChange {
        add: vec![(CHANGES.into(), 1)],
        ..ItemChange::default()
    };
    TransactionWrite::Update(key, change, None)
}

pub(super) fn key(name: &JobName) -> ItemKey {
    ItemKey::new(schema::JOBS, name.as_str())
}

/// The write of a changed definition, on the condition that its version is still `version`.
fn changed(
    name: &JobName,
    version: i64,
    set: Vec<(String, AttributeValue)>,
    remove: &[&str],
) -> TransactionWrite {
    let change = ItemChange {
        set,
        remove: remove.iter().map(|name| (*name).to_owned()).collect(),
        add: vec![(VERSION.into(), 1)],
    };
    let unchanged = WriteCondition::Is(VERSION, num(version));
    TransactionWrite::Update(key(name), change, Some(unchanged))
}

impl JobEntry {
    /// The write of a change of this definition, on the condition that it has not changed since it was read.
    pub(super) fn changed(
        &self,
        set: Vec<(String, AttributeValue)>,
        remove: &[&str],
    ) -> TransactionWrite {
        changed(&self.job.name, self.version, set, remove)
    }

    pub(super) fn unchanged(&self) -> WriteCondition {
        WriteCondition::Is(VERSION, num(self.version))
    }

    /// The attribute with the next definition, in which the fields of newer programs are kept.
    fn record_of(&self, next: &Job) -> (String, AttributeValue) {
        let json = dueline_records::job_to_json_over(next, &self.record);
        (RECORD.into(), text(json))
    }
}

impl DynamoStore {
    pub(crate) async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        for tries in 0..TRIES_MAX {
            let jobs = self.jobs(true).await?;
            let mut job = put.job.clone();
            let write = match jobs.get(&job.name) {
                Some(entry) if put.if_absent && !entry.deleting => return Ok(entry.job.clone()),
                Some(entry) => {
                    job.keep(&entry.job);
                    job.changed_at = job.changed_at.max(entry.job.changed_at);
                    // A put ends a deletion that was not completed.
                    entry.changed(vec![entry.record_of(&job)], &[DELETING])
                }
                // The new definition replaces one that cannot be decoded. It keeps its generation, so its tasks are
                // found again.
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
                    TransactionWrite::Put(item, Some(WriteCondition::Absent))
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

    /// Writes a changed definition and increments the counter, in one transaction. Answers whether the condition held.
    /// This process uses the change at once.
    pub(super) async fn change_jobs(
        &self,
        operation: &'static str,
        write: TransactionWrite,
    ) -> Result<bool, StoreError> {
        let context = CallContext::of_table(operation);
        let outcome = self
            .table
            .transact(context, &[write, count_change()])
            .await?;
        let done = matches!(outcome, TransactionOutcome::Done);
        if done {
            self.refresh_jobs().await;
        }
        Ok(done)
    }
}

/// Six random characters, one of two billion generations. A collision matters only with a deleted job of the same name
/// that the pruner has not removed yet.
fn generation() -> String {
    (0..6)
        .map(|_| fastrand::alphanumeric().to_ascii_lowercase())
        .collect()
}
