//! Schedules as text. The field names are short, because DynamoDB bills every byte of a schedule with each firing.

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{
    Backfill, CatchUp, CatchUpPolicy, FiringCounts, FiringEnd, FiringRecord, JobName, Overlap,
    Priority, QueuedFiring, RuleSpec, Schedule, ScheduleName, SchedulePause, ScheduleSpec,
    TaskTemplate, Timestamp, Weight, WriteId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{RecordError, bad, duration, millis, options_from_json, options_to_json};

/// All of a schedule but its names, its payload and the name of its latest write, which are stored separately.
#[derive(Serialize, Deserialize)]
struct StoredSchedule {
    #[serde(rename = "t")]
    timing: String,
    #[serde(rename = "z", default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    start: Option<i64>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    end: Option<i64>,
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    anchor: Option<i64>,
    #[serde(rename = "i", default, skip_serializing_if = "is_empty")]
    info: Arc<str>,
    #[serde(rename = "j", default, skip_serializing_if = "is_zero")]
    jitter_ms: u64,
    #[serde(rename = "cu")]
    catch_up: StoredCatchUp,
    #[serde(rename = "g")]
    grace_ms: u64,
    #[serde(rename = "ov")]
    overlap: String,
    #[serde(rename = "fm", default, skip_serializing_if = "Option::is_none")]
    firings_max: Option<u64>,
    #[serde(rename = "p", default, skip_serializing_if = "is_normal")]
    priority: i16,
    #[serde(rename = "w", default = "one", skip_serializing_if = "is_one")]
    weight: u16,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    options: Option<Value>,
    #[serde(rename = "pa", default, skip_serializing_if = "Option::is_none")]
    paused: Option<StoredPause>,
    #[serde(rename = "d")]
    decided_until: i64,
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    next_at: Option<i64>,
    #[serde(rename = "ac", default, skip_serializing_if = "Vec::is_empty")]
    active: Vec<i64>,
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    queued: Option<(i64, i64)>,
    #[serde(rename = "tr", default, skip_serializing_if = "Vec::is_empty")]
    triggers: Vec<i64>,
    #[serde(rename = "bf", default, skip_serializing_if = "Vec::is_empty")]
    backfills: Vec<(i64, i64)>,
    /// Fired, created, missed, skipped, failed, repaired.
    #[serde(rename = "c", default)]
    counts: [u64; 6],
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    recent: Vec<StoredFiring>,
    #[serde(rename = "by", default, skip_serializing_if = "is_empty")]
    created_by: Arc<str>,
    #[serde(rename = "ca")]
    created_at: i64,
    #[serde(rename = "ch")]
    changed_at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredCatchUp {
    None,
    Latest,
    All(u32),
}

#[derive(Serialize, Deserialize)]
struct StoredPause {
    at: i64,
    #[serde(default, skip_serializing_if = "is_empty")]
    by: Arc<str>,
    #[serde(default, skip_serializing_if = "is_empty")]
    why: Arc<str>,
}

/// First, last and number of the firings, what became of them, and why. Most are a single one that created a task: its
/// time alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredFiring {
    Created(i64),
    Other(i64, i64, u64, String, Arc<str>),
}

fn is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
const fn is_normal(priority: &i16) -> bool {
    *priority == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
const fn is_one(weight: &u16) -> bool {
    *weight == 1
}

const fn one() -> u16 {
    1
}

impl StoredFiring {
    fn of(record: &FiringRecord) -> Self {
        if record.end == FiringEnd::Created && record.count == 1 && record.info.is_empty() {
            return Self::Created(record.first.millis());
        }
        Self::Other(
            record.first.millis(),
            record.last.millis(),
            record.count,
            record.end.name().to_owned(),
            record.info.clone(),
        )
    }

    fn record(self) -> Result<FiringRecord, RecordError> {
        let (first, last, count, end, info) = match self {
            Self::Created(at) => (at, at, 1, FiringEnd::Created, Arc::default()),
            Self::Other(first, last, count, end, info) => {
                let unknown = || bad(format!("unknown end of a firing '{end}'"));
                let end = FiringEnd::from_name(&end).ok_or_else(unknown)?;
                (first, last, count, end, info)
            }
        };
        Ok(FiringRecord {
            first: Timestamp::clamped(first),
            last: Timestamp::clamped(last),
            count,
            end,
            info,
        })
    }
}

/// A schedule as text, without its names, its payload and the name of its latest write.
pub fn schedule_to_json(schedule: &Schedule) -> String {
    let Schedule {
        job: _,
        name: _,
        spec,
        paused,
        decided_until,
        next_at,
        active,
        queued,
        triggers,
        backfills,
        counts,
        recent,
        created_by,
        created_at,
        changed_at,
        write: _,
    } = schedule;
    let (rule, template) = (&spec.rule, &spec.template);
    let times = |times: &[Timestamp]| times.iter().map(|time| time.millis()).collect();
    let options = template.options.as_ref();
    let record = StoredSchedule {
        timing: rule.timing.clone(),
        zone: rule.zone.clone(),
        start: rule.start.map(Timestamp::millis),
        end: rule.end.map(Timestamp::millis),
        anchor: rule.anchor.map(Timestamp::millis),
        info: spec.info.clone(),
        jitter_ms: millis(spec.jitter),
        catch_up: match spec.catch_up.catch_up() {
            CatchUp::None => StoredCatchUp::None,
            CatchUp::Latest => StoredCatchUp::Latest,
            CatchUp::All { max } => StoredCatchUp::All(max),
        },
        grace_ms: millis(spec.catch_up.grace()),
        overlap: spec.overlap.name().to_owned(),
        firings_max: spec.firings_max,
        priority: template.priority.get(),
        weight: template.weight.get(),
        options: options
            .map(|options| serde_json::from_str(&options_to_json(options)).unwrap_or_default()),
        paused: paused.as_ref().map(|paused| StoredPause {
            at: paused.at.millis(),
            by: paused.by.clone(),
            why: paused.reason.clone(),
        }),
        decided_until: decided_until.millis(),
        next_at: next_at.map(Timestamp::millis),
        active: times(active),
        queued: queued.map(|queued| (queued.nominal_at.millis(), queued.check_at.millis())),
        triggers: times(triggers),
        backfills: backfills
            .iter()
            .map(|range| (range.from.millis(), range.to.millis()))
            .collect(),
        counts: [
            counts.fired,
            counts.created,
            counts.missed,
            counts.skipped,
            counts.failed,
            counts.repaired,
        ],
        recent: recent.iter().map(StoredFiring::of).collect(),
        created_by: created_by.clone(),
        created_at: created_at.millis(),
        changed_at: changed_at.millis(),
    };
    serde_json::to_string(&record).unwrap_or_default()
}

/// A schedule from its text and what is stored separately.
pub fn schedule_from_json(
    (job, name): (JobName, ScheduleName),
    json: &str,
    payload: Bytes,
    write: WriteId,
) -> Result<Schedule, RecordError> {
    let record: StoredSchedule = serde_json::from_str(json).map_err(bad)?;
    let time = Timestamp::clamped;
    let times = |times: Vec<i64>| times.into_iter().map(time).collect();
    let catch_up = match record.catch_up {
        StoredCatchUp::None => CatchUp::None,
        StoredCatchUp::Latest => CatchUp::Latest,
        StoredCatchUp::All(max) => CatchUp::All { max },
    };
    let options = record
        .options
        .map(|options| options_from_json(&options.to_string(), None).map(Box::new));
    let overlap = Overlap::from_name(&record.overlap);
    let [fired, created, missed, skipped, failed, repaired] = record.counts;
    let recent: Result<_, RecordError> = record
        .recent
        .into_iter()
        .map(StoredFiring::record)
        .collect();
    Ok(Schedule {
        job,
        name,
        spec: ScheduleSpec {
            info: record.info,
            rule: RuleSpec {
                timing: record.timing,
                zone: record.zone,
                start: record.start.map(time),
                end: record.end.map(time),
                anchor: record.anchor.map(time),
            },
            jitter: duration(record.jitter_ms),
            catch_up: CatchUpPolicy::new(catch_up, duration(record.grace_ms)).map_err(bad)?,
            overlap: overlap.ok_or_else(|| bad("unknown overlap policy"))?,
            firings_max: record.firings_max,
            template: TaskTemplate {
                priority: Priority::new(record.priority.into()).map_err(bad)?,
                weight: Weight::new(record.weight.into()).map_err(bad)?,
                payload,
                options: options.transpose()?,
            },
        },
        paused: record.paused.map(|paused| SchedulePause {
            at: time(paused.at),
            by: paused.by,
            reason: paused.why,
        }),
        decided_until: time(record.decided_until),
        next_at: record.next_at.map(time),
        active: times(record.active),
        queued: record.queued.map(|(nominal_at, check_at)| QueuedFiring {
            nominal_at: time(nominal_at),
            check_at: time(check_at),
        }),
        triggers: times(record.triggers),
        backfills: record
            .backfills
            .into_iter()
            .map(|(from, to)| Backfill {
                from: time(from),
                to: time(to),
            })
            .collect(),
        counts: FiringCounts {
            fired,
            created,
            missed,
            skipped,
            failed,
            repaired,
        },
        recent: recent?,
        created_by: record.created_by,
        created_at: time(record.created_at),
        changed_at: time(record.changed_at),
        write,
    })
}
