//! Schedules.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Backfill, CatchUp, FiringCounts, FiringRecord, JobName, QueuedFiring, RuleSpec, Schedule,
    SchedulePause, ScheduleSpec, TaskId, TaskTemplate, Timestamp, WriteId,
};

use super::{enums, field, new_task};
use crate::{
    ApiError, check,
    grpc::proto,
    operation::{NextFiring, ShownSchedule},
    v1::{catch_up_policy, template},
};

impl From<ScheduleSpec> for proto::ScheduleSpec {
    fn from(spec: ScheduleSpec) -> Self {
        let (catch_up, catch_up_max) = match spec.catch_up.catch_up() {
            CatchUp::None => (proto::CatchUp::None, None),
            CatchUp::Latest => (proto::CatchUp::Latest, None),
            CatchUp::All { max } => (proto::CatchUp::All, Some(max)),
        };
        Self {
            info: spec.info.as_ref().to_owned(),
            timing: spec.rule.timing,
            zone: spec.rule.zone,
            start_ms: spec.rule.start.map(Timestamp::millis),
            end_ms: spec.rule.end.map(Timestamp::millis),
            anchor_ms: spec.rule.anchor.map(Timestamp::millis),
            jitter_ms: field::millis(spec.jitter),
            catch_up: catch_up.into(),
            catch_up_max,
            grace_ms: Some(field::millis(spec.catch_up.grace())),
            overlap: proto::Overlap::from(spec.overlap).into(),
            firings_max: spec.firings_max,
            task: Some(task(spec.template)),
        }
    }
}

/// A template as a task without an id, a job and a due time.
fn task(template: TaskTemplate) -> proto::NewTask {
    proto::NewTask {
        id: None,
        id_is_generated: false,
        job: String::new(),
        run_at_ms: None,
        delay_ms: None,
        priority: template.priority.get().into(),
        weight: Some(template.weight.get().into()),
        payload: template.payload,
        options: template.options.map(|options| (*options).into()),
    }
}

/// The settings of a schedule of `job`.
pub(crate) fn schedule_spec(
    spec: proto::ScheduleSpec,
    job: &JobName,
) -> Result<ScheduleSpec, ApiError> {
    let catch_up = match proto::CatchUp::try_from(spec.catch_up) {
        Ok(proto::CatchUp::Unspecified) => None,
        Ok(proto::CatchUp::None) => Some("none"),
        Ok(proto::CatchUp::Latest) => Some("latest"),
        Ok(proto::CatchUp::All) => Some("all"),
        // No policy has this name, so it is refused like an unknown name.
        Err(_) => Some("unknown"),
    };
    let task = spec.task.map(|mut task| {
        if task.job.is_empty() {
            task.job = job.to_string();
        }
        // The id of a program that only wanted to have one is none.
        if task.id_is_generated {
            task.id = None;
        }
        new_task(task, || TaskId::from_bytes([0; 16])).map_err(|error| error.within("task"))
    });
    Ok(ScheduleSpec {
        info: Arc::from(spec.info),
        rule: RuleSpec {
            timing: spec.timing,
            zone: spec.zone,
            start: field::timestamp_opt("start", spec.start_ms)?,
            end: field::timestamp_opt("end", spec.end_ms)?,
            anchor: field::timestamp_opt("anchor", spec.anchor_ms)?,
        },
        jitter: Duration::from_millis(spec.jitter_ms),
        catch_up: catch_up_policy(catch_up, spec.catch_up_max, spec.grace_ms)?,
        overlap: enums::overlap("overlap", spec.overlap)?,
        firings_max: spec.firings_max,
        template: match task.transpose()? {
            Some(task) => template(task, job)?,
            None => TaskTemplate::default(),
        },
    })
}

impl From<ShownSchedule> for proto::Schedule {
    fn from(shown: ShownSchedule) -> Self {
        let ShownSchedule {
            schedule,
            next,
            tasks,
        } = shown;
        let times = |times: Vec<Timestamp>| times.into_iter().map(Timestamp::millis).collect();
        let counts = schedule.counts;
        Self {
            job: schedule.job.to_string(),
            name: schedule.name.to_string(),
            spec: Some(schedule.spec.into()),
            paused: schedule.paused.map(|pause| proto::SchedulePause {
                at_ms: pause.at.millis(),
                by: pause.by.as_ref().to_owned(),
                reason: pause.reason.as_ref().to_owned(),
            }),
            next_at_ms: schedule.next_at.map(Timestamp::millis),
            decided_until_ms: schedule.decided_until.millis(),
            active_ms: times(schedule.active),
            queued_ms: schedule.queued.map(|queued| queued.nominal_at.millis()),
            queued_check_ms: schedule.queued.map(|queued| queued.check_at.millis()),
            triggers_ms: times(schedule.triggers),
            backfills: schedule
                .backfills
                .iter()
                .map(|range| proto::TimeRange {
                    from_ms: range.from.millis(),
                    to_ms: range.to.millis(),
                })
                .collect(),
            fired: counts.fired,
            created: counts.created,
            missed: counts.missed,
            skipped: counts.skipped,
            failed: counts.failed,
            repaired: counts.repaired,
            recent: schedule.recent.into_iter().map(Into::into).collect(),
            created_by: schedule.created_by.as_ref().to_owned(),
            created_at_ms: schedule.created_at.millis(),
            changed_at_ms: schedule.changed_at.millis(),
            next: next
                .into_iter()
                .map(|firing| proto::NextFiring {
                    at_ms: firing.at.millis(),
                    local: firing.local,
                })
                .collect(),
            tasks: tasks
                .into_iter()
                .map(|(nominal_at, id)| proto::FiringTask {
                    nominal_ms: nominal_at.millis(),
                    id: id.to_string(),
                })
                .collect(),
        }
    }
}

impl TryFrom<proto::Schedule> for ShownSchedule {
    type Error = ApiError;

    fn try_from(shown: proto::Schedule) -> Result<Self, ApiError> {
        let time = field::timestamp;
        let times = |field, times: Vec<i64>| {
            let times = times.into_iter().map(|millis| time(field, millis));
            times.collect::<Result<Vec<_>, _>>()
        };
        let job = field::job_name("job", &shown.job)?;
        let queued = field::timestamp_opt("queued", shown.queued_ms)?;
        let check_at = field::timestamp_opt("queued", shown.queued_check_ms)?;
        let schedule = Schedule {
            name: field::schedule_name("name", &shown.name)?,
            spec: schedule_spec(field::required("spec", shown.spec)?, &job)?,
            job,
            paused: shown
                .paused
                .map(|pause| {
                    Ok::<_, ApiError>(SchedulePause {
                        at: time("paused", pause.at_ms)?,
                        by: Arc::from(pause.by),
                        reason: Arc::from(pause.reason),
                    })
                })
                .transpose()?,
            decided_until: time("decided_until", shown.decided_until_ms)?,
            next_at: field::timestamp_opt("next_at", shown.next_at_ms)?,
            active: times("active", shown.active_ms)?,
            queued: queued.map(|nominal_at| QueuedFiring {
                nominal_at,
                check_at: check_at.unwrap_or(nominal_at),
            }),
            triggers: times("triggers", shown.triggers_ms)?,
            backfills: shown
                .backfills
                .into_iter()
                .map(|range| {
                    Ok(Backfill {
                        from: time("backfills", range.from_ms)?,
                        to: time("backfills", range.to_ms)?,
                    })
                })
                .collect::<Result<_, ApiError>>()?,
            counts: FiringCounts {
                fired: shown.fired,
                created: shown.created,
                missed: shown.missed,
                skipped: shown.skipped,
                failed: shown.failed,
                repaired: shown.repaired,
            },
            recent: shown
                .recent
                .into_iter()
                .map(FiringRecord::try_from)
                .collect::<Result<_, _>>()?,
            created_by: Arc::from(shown.created_by),
            created_at: time("created_at", shown.created_at_ms)?,
            changed_at: time("changed_at", shown.changed_at_ms)?,
            write: WriteId::HIDDEN,
        };
        Ok(Self {
            schedule,
            next: shown
                .next
                .into_iter()
                .map(|firing| {
                    Ok(NextFiring {
                        at: time("next", firing.at_ms)?,
                        local: firing.local,
                    })
                })
                .collect::<Result<_, ApiError>>()?,
            tasks: shown
                .tasks
                .into_iter()
                .map(|task| {
                    let id = check::field::task_id("tasks", &task.id)?;
                    Ok((time("tasks", task.nominal_ms)?, id))
                })
                .collect::<Result<_, ApiError>>()?,
        })
    }
}

impl From<FiringRecord> for proto::FiringRecord {
    fn from(record: FiringRecord) -> Self {
        Self {
            first_ms: record.first.millis(),
            last_ms: record.last.millis(),
            count: record.count,
            end: proto::FiringEnd::from(record.end).into(),
            info: record.info.as_ref().to_owned(),
        }
    }
}

impl TryFrom<proto::FiringRecord> for FiringRecord {
    type Error = ApiError;

    fn try_from(record: proto::FiringRecord) -> Result<Self, ApiError> {
        Ok(Self {
            first: field::timestamp("recent", record.first_ms)?,
            last: field::timestamp("recent", record.last_ms)?,
            count: record.count,
            end: enums::firing_end("recent", record.end)?,
            info: Arc::from(record.info),
        })
    }
}
