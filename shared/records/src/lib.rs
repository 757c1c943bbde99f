#![doc = include_str!("../README.md")]

mod family;
mod schedule;
mod unique;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dueline_domain::{
    Backoff, Effect, FairShare, Firing, Handler, History, Job, JobName, Overrides, Owed, Policy,
    Quota, RetryPolicy, RunEnd, RunRecord, ScheduleName, Sink, TaskOptions, Timestamp, WorkerId,
};
use dueline_ports::WorkerRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use schedule::{schedule_from_json, schedule_to_json};

/// Why stored text cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(String);

fn bad(error: impl std::fmt::Display) -> RecordError {
    RecordError(error.to_string())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const fn duration(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Serialize, Deserialize)]
struct BackoffRecord {
    initial_ms: u64,
    multiplier: f64,
    jitter: f64,
    max_ms: u64,
}

impl BackoffRecord {
    fn of(backoff: &Backoff) -> Self {
        Self {
            initial_ms: millis(backoff.initial()),
            multiplier: backoff.multiplier(),
            jitter: backoff.jitter(),
            max_ms: millis(backoff.max()),
        }
    }

    fn backoff(&self) -> Result<Backoff, RecordError> {
        let (initial, max) = (duration(self.initial_ms), duration(self.max_ms));
        Backoff::new(initial, self.multiplier, self.jitter, max).map_err(bad)
    }
}

/// How fairness keys share the workers of a job.
#[derive(Serialize, Deserialize)]
struct FairShareRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running_max: Option<u32>,
}

/// The settings of a job. A field that an older program did not write has the default of a new job.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct JobRecord {
    info: Arc<str>,
    handler: Arc<str>,
    handler_config: Arc<str>,
    retries_max: Option<u32>,
    standard: BackoffRecord,
    quick: BackoffRecord,
    slow: BackoffRecord,
    rate_limited: BackoffRecord,
    worker_lost: Option<BackoffRecord>,
    enqueue_timeout_ms: u64,
    claim_timeout_ms: u64,
    heartbeat_timeout_ms: u64,
    heartbeat_increment_ms: u64,
    run_timeout_ms: Option<u64>,
    losses_max: u32,
    retention_ms: Option<u64>,
    sink: Option<Arc<str>>,
    rate_per_s: Option<f64>,
    burst: Option<u32>,
    running_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fair_share: Option<FairShareRecord>,
    paused: bool,
    created_by: Arc<str>,
    created_at: i64,
    changed_at: i64,
}

impl Default for JobRecord {
    fn default() -> Self {
        let worker = Handler::worker();
        let text: Arc<str> = Arc::from("");
        Self::of(&Job {
            // The name is not part of the record.
            name: JobName::parse("default").expect("a legal name"),
            info: text.clone(),
            handler: worker,
            policy: Policy::default(),
            quota: Quota::default(),
            fair_share: None,
            paused: false,
            created_by: text,
            created_at: Timestamp::EPOCH,
            changed_at: Timestamp::EPOCH,
        })
    }
}

/// A definition as text.
pub fn job_to_json(job: &Job) -> String {
    // Serialising plain data with text keys cannot fail.
    serde_json::to_string(&JobRecord::of(job)).unwrap_or_default()
}

/// A definition as the text that replaces `stored`. Unknown fields of `stored`, which a newer program has written, are
/// kept.
pub fn job_to_json_over(job: &Job, stored: &str) -> String {
    let mut record = serde_json::json!(JobRecord::of(job));
    if let Ok(stored) = serde_json::from_str(stored) {
        keep_unknown(&mut record, stored);
    }
    record.to_string()
}

fn keep_unknown(record: &mut Value, stored: Value) {
    let (Value::Object(record), Value::Object(stored)) = (record, stored) else {
        return;
    };
    for (name, value) in stored {
        match record.get_mut(&name) {
            Some(known) => keep_unknown(known, value),
            None => drop(record.insert(name, value)),
        }
    }
}

impl JobRecord {
    fn of(job: &Job) -> Self {
        let (policy, retry) = (&job.policy, &job.policy.retry);
        Self {
            info: job.info.clone(),
            handler: job.handler.kind.clone(),
            handler_config: job.handler.config.clone(),
            retries_max: retry.retries_max,
            standard: BackoffRecord::of(&retry.standard),
            quick: BackoffRecord::of(&retry.quick),
            slow: BackoffRecord::of(&retry.slow),
            rate_limited: BackoffRecord::of(&retry.rate_limited),
            worker_lost: retry.worker_lost.as_ref().map(BackoffRecord::of),
            enqueue_timeout_ms: millis(policy.enqueue_timeout),
            claim_timeout_ms: millis(policy.claim_timeout),
            heartbeat_timeout_ms: millis(policy.heartbeat_timeout),
            heartbeat_increment_ms: millis(policy.heartbeat_increment),
            run_timeout_ms: policy.run_timeout.map(millis),
            losses_max: policy.losses_max,
            retention_ms: policy.retention.map(millis),
            sink: policy.sink.as_ref().map(|sink| Arc::from(sink.as_str())),
            rate_per_s: job.quota.rate_per_s,
            burst: job.quota.burst,
            running_max: job.quota.running_max,
            fair_share: job.fair_share.map(|share| FairShareRecord {
                running_max: share.running_max,
            }),
            paused: job.paused,
            created_by: job.created_by.clone(),
            created_at: job.created_at.millis(),
            changed_at: job.changed_at.millis(),
        }
    }
}

/// A definition from its text. The name is stored separately.
pub fn job_from_json(name: &str, json: &str) -> Result<Job, RecordError> {
    let record: JobRecord = serde_json::from_str(json).map_err(bad)?;
    Ok(Job {
        name: JobName::parse(name).map_err(bad)?,
        info: record.info,
        handler: Handler {
            kind: record.handler,
            config: record.handler_config,
        },
        policy: Policy {
            retry: RetryPolicy {
                retries_max: record.retries_max,
                standard: record.standard.backoff()?,
                quick: record.quick.backoff()?,
                slow: record.slow.backoff()?,
                rate_limited: record.rate_limited.backoff()?,
                worker_lost: record
                    .worker_lost
                    .map(|record| record.backoff())
                    .transpose()?,
            },
            enqueue_timeout: duration(record.enqueue_timeout_ms),
            claim_timeout: duration(record.claim_timeout_ms),
            heartbeat_timeout: duration(record.heartbeat_timeout_ms),
            heartbeat_increment: duration(record.heartbeat_increment_ms),
            run_timeout: record.run_timeout_ms.map(duration),
            losses_max: record.losses_max,
            retention: record.retention_ms.map(duration),
            sink: record
                .sink
                .map(|uri| Sink::parse(&uri))
                .transpose()
                .map_err(bad)?,
        },
        quota: Quota {
            rate_per_s: record.rate_per_s,
            burst: record.burst,
            running_max: record.running_max,
        },
        fair_share: record.fair_share.map(|share| FairShare {
            running_max: share.running_max,
        }),
        paused: record.paused,
        created_by: record.created_by,
        created_at: Timestamp::clamped(record.created_at),
        changed_at: Timestamp::clamped(record.changed_at),
    })
}

/// What a task owes, without its trigger time, which is stored separately. The field names are short for the same reason
/// as those of a past run.
#[derive(Serialize, Deserialize)]
struct OwedRecord {
    #[serde(rename = "e")]
    effects: Vec<String>,
    #[serde(rename = "n", default, skip_serializing_if = "is_zero")]
    failures: u32,
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    error: Option<Arc<str>>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a task owes as text, without its trigger time.
pub fn owed_to_json(owed: &Owed) -> String {
    let record = OwedRecord {
        effects: owed.effects.iter().map(|e| e.name().to_owned()).collect(),
        failures: owed.failures,
        error: owed.error.clone(),
    };
    serde_json::to_string(&record).unwrap_or_default()
}

/// What a task owes, from its text and its trigger time.
pub fn owed_from_json(json: &str, trigger_at: Timestamp) -> Result<Owed, RecordError> {
    let record: OwedRecord = serde_json::from_str(json).map_err(bad)?;
    let effect = |name: &String| {
        Effect::from_name(name).ok_or_else(|| bad(format!("unknown effect '{name}'")))
    };
    Ok(Owed {
        effects: record
            .effects
            .iter()
            .map(effect)
            .collect::<Result<_, _>>()?,
        trigger_at,
        failures: record.failures,
        error: record.error,
    })
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct OptionsRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overrides: Option<OverridesRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_run_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    firing: Option<StoredFiringName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<family::FamilyRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique: Option<unique::UniqueRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness_key: Option<Arc<str>>,
    #[serde(rename = "turns", skip_serializing_if = "std::ops::Not::not")]
    takes_turns: bool,
}

/// The firing that created a task.
#[derive(Serialize, Deserialize)]
struct StoredFiringName {
    #[serde(rename = "s")]
    schedule: String,
    #[serde(rename = "n")]
    nominal_at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct OverridesRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    retries_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<BackoffRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_increment_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_timeout_ms: Option<u64>,
}

/// Options as text, without the key, which is stored separately.
pub fn options_to_json(options: &TaskOptions) -> String {
    let overrides = options.overrides.as_ref();
    let overrides = overrides.map(|overrides| OverridesRecord {
        retries_max: overrides.retries_max,
        backoff: overrides.backoff.as_ref().map(BackoffRecord::of),
        heartbeat_timeout_ms: overrides.heartbeat_timeout.map(millis),
        heartbeat_increment_ms: overrides.heartbeat_increment.map(millis),
        run_timeout_ms: overrides.run_timeout.map(millis),
    });
    let record = OptionsRecord {
        name: options.name.clone(),
        details: options.details.clone(),
        tags: options.tags.clone(),
        created_by: options.created_by.clone(),
        content_type: options.content_type.clone(),
        trace: options.trace.clone(),
        overrides,
        original_run_at: options.original_run_at.map(Timestamp::millis),
        firing: options.firing.as_ref().map(|firing| StoredFiringName {
            schedule: firing.schedule.to_string(),
            nominal_at: firing.nominal_at.millis(),
        }),
        family: options.family.as_deref().map(family::FamilyRecord::of),
        unique: options.unique.as_deref().map(unique::UniqueRecord::of),
        fairness_key: options.fairness_key.clone(),
        takes_turns: options.takes_turns,
    };
    serde_json::to_string(&record).unwrap_or_default()
}

/// Options from their text and the key.
pub fn options_from_json(json: &str, key: Option<Arc<str>>) -> Result<TaskOptions, RecordError> {
    let record: OptionsRecord = serde_json::from_str(json).map_err(bad)?;
    let overrides = record
        .overrides
        .map(|record| {
            Ok::<_, RecordError>(Overrides {
                retries_max: record.retries_max,
                backoff: record.backoff.map(|b| b.backoff()).transpose()?,
                heartbeat_timeout: record.heartbeat_timeout_ms.map(duration),
                heartbeat_increment: record.heartbeat_increment_ms.map(duration),
                run_timeout: record.run_timeout_ms.map(duration),
            })
        })
        .transpose()?;
    Ok(TaskOptions {
        name: record.name,
        details: record.details,
        tags: record.tags,
        key,
        created_by: record.created_by,
        content_type: record.content_type,
        trace: record.trace,
        overrides,
        original_run_at: record.original_run_at.map(Timestamp::clamped),
        firing: record
            .firing
            .map(|firing| {
                Ok::<_, RecordError>(Firing {
                    schedule: ScheduleName::parse(&firing.schedule).map_err(bad)?,
                    nominal_at: Timestamp::clamped(firing.nominal_at),
                })
            })
            .transpose()?,
        unique: record
            .unique
            .map(|unique| unique.unique().map(Box::new))
            .transpose()?,
        family: record
            .family
            .map(|family| family.family().map(Box::new))
            .transpose()?,
        fairness_key: record.fairness_key,
        takes_turns: record.takes_turns,
    })
}

#[derive(Serialize, Deserialize)]
struct HistoryRecord {
    runs: Vec<StoredRun>,
    #[serde(default)]
    dropped: u32,
}

/// A past run. The field names are short, because DynamoDB bills every byte of a task with each of its writes.
#[derive(Serialize, Deserialize)]
struct StoredRun {
    #[serde(rename = "n", alias = "attempt")]
    attempt: u32,
    #[serde(rename = "w", alias = "worker")]
    worker: String,
    #[serde(rename = "s", alias = "started_at")]
    started_at: i64,
    #[serde(rename = "f", alias = "finished_at")]
    finished_at: i64,
    #[serde(rename = "e", alias = "end")]
    end: String,
    #[serde(rename = "i", alias = "info")]
    info: Arc<str>,
}

impl StoredRun {
    fn of(run: &RunRecord) -> Self {
        Self {
            attempt: run.attempt,
            worker: run.worker.as_str().to_owned(),
            started_at: run.started_at.millis(),
            finished_at: run.finished_at.millis(),
            end: run.end.name().to_owned(),
            info: run.info.clone(),
        }
    }

    fn run(self) -> Result<RunRecord, RecordError> {
        let end = RunEnd::ALL.into_iter().find(|end| end.name() == self.end);
        Ok(RunRecord {
            attempt: self.attempt,
            worker: WorkerId::parse(&self.worker).map_err(bad)?,
            started_at: Timestamp::clamped(self.started_at),
            finished_at: Timestamp::clamped(self.finished_at),
            end: end.ok_or_else(|| bad("unknown end of a run"))?,
            info: self.info,
        })
    }
}

/// A past run as text.
pub fn run_to_json(run: &RunRecord) -> String {
    serde_json::to_string(&StoredRun::of(run)).unwrap_or_default()
}

/// A past run from its text.
pub fn run_from_json(json: &str) -> Result<RunRecord, RecordError> {
    let stored: StoredRun = serde_json::from_str(json).map_err(bad)?;
    stored.run()
}

/// A history as text.
pub fn history_to_json(history: &History) -> String {
    let runs = history.runs.iter().map(StoredRun::of).collect();
    let dropped = history.dropped;
    serde_json::to_string(&HistoryRecord { runs, dropped }).unwrap_or_default()
}

/// A history from its text.
pub fn history_from_json(json: &str) -> Result<History, RecordError> {
    let record: HistoryRecord = serde_json::from_str(json).map_err(bad)?;
    let runs: Result<_, RecordError> = record.runs.into_iter().map(StoredRun::run).collect();
    Ok(History {
        runs: runs?,
        dropped: record.dropped,
    })
}

#[derive(Serialize, Deserialize)]
struct StoredWorker {
    kind: Arc<str>,
    jobs: Vec<String>,
    handlers: Vec<Arc<str>>,
    concurrency: u32,
    embedded: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<Arc<str>, Arc<str>>,
    started_at: i64,
    seen_at: i64,
}

/// A worker as text.
pub fn worker_to_json(worker: &WorkerRecord) -> String {
    let stored = StoredWorker {
        kind: worker.kind.clone(),
        jobs: worker.jobs.iter().map(ToString::to_string).collect(),
        handlers: worker.handlers.clone(),
        concurrency: worker.concurrency,
        embedded: worker.embedded,
        metadata: worker.metadata.clone(),
        started_at: worker.started_at.millis(),
        seen_at: worker.seen_at.millis(),
    };
    serde_json::to_string(&stored).unwrap_or_default()
}

/// A worker from its text. The id is stored separately.
pub fn worker_from_json(id: &str, json: &str) -> Result<WorkerRecord, RecordError> {
    let stored: StoredWorker = serde_json::from_str(json).map_err(bad)?;
    Ok(WorkerRecord {
        id: WorkerId::parse(id).map_err(bad)?,
        kind: stored.kind,
        jobs: stored
            .jobs
            .iter()
            .map(|name| JobName::parse(name))
            .collect::<Result<_, _>>()
            .map_err(bad)?,
        handlers: stored.handlers,
        concurrency: stored.concurrency,
        embedded: stored.embedded,
        metadata: stored.metadata,
        started_at: Timestamp::clamped(stored.started_at),
        seen_at: Timestamp::clamped(stored.seen_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_011_the_original_run_time_is_an_optional_field_of_the_options() {
        let older = options_from_json(r#"{"name":"a"}"#, None).unwrap();
        assert_eq!(older.original_run_at, None);
        assert_eq!(options_to_json(&older), r#"{"name":"a"}"#);
        let rescheduled = TaskOptions {
            original_run_at: Some(Timestamp::clamped(5)),
            ..older
        };
        let json = options_to_json(&rescheduled);
        assert_eq!(options_from_json(&json, None).unwrap(), rescheduled);
        // A program ignores the fields that a newer one has added.
        let newer = options_from_json(r#"{"name":"a","later":{"x":1}}"#, None);
        assert_eq!(newer.unwrap().name.as_deref(), Some("a"));
    }

    #[test]
    fn a_past_run_is_stored_with_short_names_and_read_with_short_or_long_names() {
        let long = r#"{"runs":[{"attempt":1,"worker":"w@1","started_at":5,"finished_at":9,"end":"lost","info":"x"}]}"#;
        let history = history_from_json(long).unwrap();
        assert_eq!(history.runs[0].end, RunEnd::Lost);
        let short = history_to_json(&history);
        assert!(short.len() < long.len(), "{short}");
        assert_eq!(history_from_json(&short).unwrap(), history);
        let run = &history.runs[0];
        assert_eq!(run_from_json(&run_to_json(run)).unwrap(), *run);
    }
}
