//! Schedules: one item each, in the due index while the schedule has something to do.

use std::collections::BTreeMap;

use bytes::Bytes;
use dueline_domain::{JobName, Schedule, ScheduleName, Timestamp, WriteId};
use dueline_ports::{
    DueSchedulesPage, DueSchedulesQuery, PutSchedule, SCHEDULE_SHARDS, ScheduleQuery, StoreError,
    schedule_shard,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    attr::{InvalidData, Item, bytes, get_bytes, get_num, get_text, id_bytes, num, required, text},
    calls::{CallContext, ConditionalOutcome, ItemKey, QueryRequest, SortRange, WriteCondition},
    jobs::JobEntry,
    schema,
    store::{CONCURRENT_CALLS, DynamoStore},
};

/// The record as JSON.
const RECORD: &str = "j";
/// The payload of the tasks.
const PAYLOAD: &str = "b";
/// The name of the latest write.
const WRITE: &str = "w";
/// Entries of the first page of a shard: about as many as the smallest charge of a query covers.
const FIRST_PAGE: usize = 20;

fn key(entry: &JobEntry, name: &ScheduleName) -> ItemKey {
    ItemKey::new(entry.partitions.of_schedule(name), name.as_str())
}

fn item(entry: &JobEntry, schedule: &Schedule) -> Item {
    let mut item = key(entry, &schedule.name).item();
    let json = dueline_records::schedule_to_json(schedule);
    item.insert(RECORD.into(), text(json));
    item.insert(WRITE.into(), id_bytes(schedule.write.to_stored()));
    let payload = &schedule.spec.template.payload;
    if !payload.is_empty() {
        item.insert(PAYLOAD.into(), bytes(payload));
    }
    if let Some(wake_at) = schedule.wake_at() {
        let shard = schedule_shard(&schedule.job, &schedule.name);
        item.insert(schema::DUE_KEY.into(), text(schema::due_schedules(shard)));
        item.insert(schema::DUE_HINT.into(), num(wake_at.millis()));
    }
    item
}

fn write_of(item: &Item) -> Result<WriteId, InvalidData> {
    let stored = required(get_bytes(item, WRITE)?, WRITE)?;
    let bits = <[u8; 8]>::try_from(stored).map(i64::from_be_bytes);
    let write = bits.ok().and_then(WriteId::from_stored);
    write.ok_or_else(|| InvalidData::new("the write id is not one"))
}

fn schedule_of(item: &Item, job: &JobName) -> Result<Schedule, InvalidData> {
    let name = required(get_bytes(item, schema::SK)?, schema::SK)?;
    let name = std::str::from_utf8(name).map_err(InvalidData::new)?;
    let name = ScheduleName::parse(name).map_err(InvalidData::new)?;
    let json = required(get_text(item, RECORD)?, RECORD)?;
    let payload = get_bytes(item, PAYLOAD)?.unwrap_or_default();
    let payload = Bytes::copy_from_slice(payload);
    dueline_records::schedule_from_json((job.clone(), name), json, payload, write_of(item)?)
        .map_err(InvalidData::new)
}

/// A schedule that was read; an unreadable one is logged and left out, so that it does not hide the others.
fn readable(item: &Item, job: &JobName) -> Option<Schedule> {
    schedule_of(item, job)
        .inspect_err(|error| tracing::error!(job.name = %job, %error, "unreadable schedule"))
        .ok()
}

impl DynamoStore {
    pub(crate) async fn put_schedules(
        &self,
        puts: Vec<PutSchedule>,
    ) -> Vec<Result<bool, StoreError>> {
        let puts = puts.into_iter().map(|put| Box::pin(self.put_schedule(put)));
        let puts: Vec<_> = puts.collect();
        stream::iter(puts)
            .buffered(CONCURRENT_CALLS)
            .collect()
            .await
    }

    async fn put_schedule(&self, put: PutSchedule) -> Result<bool, StoreError> {
        let PutSchedule { schedule, seen } = put;
        let jobs = self.jobs(false).await?;
        let jobs = self.jobs_including(jobs, &schedule.job).await?;
        let entry = jobs.open(&schedule.job)?;
        let context = CallContext::of_job(schedule.job.as_str(), "put_schedule");
        let condition = seen.map_or(WriteCondition::Absent, |seen| {
            WriteCondition::Is(WRITE, id_bytes(seen.to_stored()))
        });
        let item = item(entry, &schedule);
        let outcome = self.table.put(context, item, Some(condition)).await?;
        Ok(match outcome {
            ConditionalOutcome::Done => true,
            // The SDK repeats a call by itself, so the first try may have been this write.
            ConditionalOutcome::Refused(Some(stored)) => {
                write_of(&stored).is_ok_and(|write| write == schedule.write)
            }
            ConditionalOutcome::Refused(None) => false,
        })
    }

    pub(crate) async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError> {
        let jobs = self.jobs(false).await?;
        let Some(entry) = jobs.get(job) else {
            return Ok(None);
        };
        let context = CallContext::of_job(job.as_str(), "schedule");
        let found = self.table.get(context, &key(entry, name), true).await?;
        let found = found.map(|item| schedule_of(&item, job)).transpose();
        found.map_err(|invalid| invalid.into_error(format!("schedule '{name}' of '{job}'")))
    }

    pub(crate) async fn schedules(
        &self,
        query: ScheduleQuery,
    ) -> Result<Vec<Schedule>, StoreError> {
        let jobs = self.jobs(false).await?;
        let entry = jobs
            .get(&query.job)
            .ok_or_else(|| StoreError::no_job(&query.job))?;
        let context = CallContext::of_job(query.job.as_str(), "schedules");
        let range = query.after.as_ref().map_or(SortRange::All, |after| {
            // The smallest key after this name.
            SortRange::From(bytes([after.as_str().as_bytes(), &[0]].concat()))
        });
        let (range, job, limit) = (&range, &query.job, query.limit);
        let read = |slot| async move {
            let partition = entry.partitions.schedules(slot);
            let request = QueryRequest {
                partition: &partition,
                range: range.clone(),
                limit: Some(limit),
                consistent: true,
                ..QueryRequest::default()
            };
            let items = self.table.query_all(context, request, limit).await?;
            let found = items.iter().filter_map(|item| readable(item, job));
            Ok::<Vec<Schedule>, StoreError>(found.collect())
        };
        let reads = stream::iter(0..self.slots).map(read);
        let found: Vec<_> = reads.buffered(CONCURRENT_CALLS).try_collect().await?;
        let by_name: BTreeMap<_, _> = found
            .into_iter()
            .flatten()
            .map(|schedule| (schedule.name.clone(), schedule))
            .collect();
        Ok(by_name.into_values().take(limit).collect())
    }

    /// Whether a job has a schedule.
    pub(crate) async fn has_schedules(&self, entry: &JobEntry) -> Result<bool, StoreError> {
        let context = CallContext::of_job(entry.partitions.job.as_str(), "delete_job");
        for slot in 0..self.slots {
            let partition = entry.partitions.schedules(slot);
            let request = QueryRequest {
                partition: &partition,
                limit: Some(1),
                consistent: true,
                attributes: &[schema::PK],
                ..QueryRequest::default()
            };
            if !self.table.query(context, request).await?.items.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        let jobs = self.jobs_or_stale().await?;
        let covers = |shard: &u32| {
            let share = query.share.as_ref();
            share.is_none_or(|share| share.covers_schedules(*shard))
        };
        let shards: Vec<_> = (0..SCHEDULE_SHARDS)
            .filter(covers)
            .map(|shard| Box::pin(self.due_shard(shard, query.now, query.limit)))
            .collect();
        let mut reading = stream::iter(shards).buffer_unordered(CONCURRENT_CALLS);
        let (mut due, mut next_at) = (Vec::new(), None);
        while let Some((found, next)) = reading.try_next().await? {
            due.extend(found);
            next_at = next_at.into_iter().chain(next).min();
        }
        drop(reading);
        due.sort_by_key(|(wake_at, _)| *wake_at);
        let more = due.len() > query.limit;
        due.truncate(query.limit);
        let mut by_key = BTreeMap::new();
        for (_, key) in &due {
            // `s#`, the job, its generation, the slot.
            let mut parts = key.pk.split('#').skip(1);
            let job = parts.next().and_then(|job| JobName::parse(job).ok());
            let entry = job.as_ref().and_then(|job| jobs.get(job));
            if let (Some(entry), Some(generation)) = (entry, parts.next())
                && *entry.partitions.generation == *generation
            {
                by_key.insert(
                    (key.pk.clone(), key.sk.clone()),
                    entry.partitions.job.clone(),
                );
            }
        }
        let keys: Vec<_> = by_key
            .keys()
            .map(|(pk, sk)| ItemKey::new(pk.clone(), sk))
            .collect();
        let context = CallContext::of_table("due_schedules");
        let items = self.table.get_many(context, &keys, &[], true).await?;
        let mut schedules: Vec<_> = items
            .iter()
            .filter_map(|item| {
                let key = ItemKey::of(item)?;
                let schedule = readable(item, by_key.get(&(key.pk, key.sk))?)?;
                // The index may be behind the item.
                let is_due = schedule.wake_at().is_some_and(|at| at <= query.now);
                is_due.then_some(schedule)
            })
            .collect();
        schedules.sort_by_key(Schedule::wake_at);
        Ok(DueSchedulesPage {
            schedules,
            more,
            next_at,
        })
    }

    /// The keys of one shard whose time has come, at most one more than `limit`, and the first time that has not come.
    async fn due_shard(
        &self,
        shard: u32,
        now: Timestamp,
        limit: usize,
    ) -> Result<(Vec<(Timestamp, ItemKey)>, Option<Timestamp>), StoreError> {
        let context = CallContext::of_table("due_schedules");
        let partition = schema::due_schedules(shard);
        let (mut due, mut after) = (Vec::new(), None);
        let mut page_len = FIRST_PAGE;
        loop {
            let request = QueryRequest {
                partition: &partition,
                due: true,
                limit: Some(page_len),
                after,
                ..QueryRequest::default()
            };
            let page = self.table.query(context, request).await?;
            for item in &page.items {
                let hint = get_num(item, schema::DUE_HINT).ok().flatten();
                let (Some(hint), Some(key)) = (hint, ItemKey::of(item)) else {
                    continue;
                };
                let wake_at = Timestamp::clamped(hint);
                if wake_at > now {
                    return Ok((due, Some(wake_at)));
                }
                due.push((wake_at, key));
            }
            after = page.next;
            if after.is_none() || due.len() > limit {
                return Ok((due, None));
            }
            page_len = limit.max(FIRST_PAGE);
        }
    }

    pub(crate) async fn delete_schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        let jobs = self.jobs(false).await?;
        let Some(entry) = jobs.get(job) else {
            return Ok(false);
        };
        let context = CallContext::of_job(job.as_str(), "delete_schedule");
        let key = key(entry, name);
        if self.table.get(context, &key, true).await?.is_none() {
            return Ok(false);
        }
        self.table.delete(context, &key, None).await?;
        Ok(true)
    }
}
