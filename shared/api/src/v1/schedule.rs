//! Schedules.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    CatchUp, CatchUpPolicy, Due, FiringRecord, JobName, NewTask, Overlap, RuleSpec, ScheduleName,
    SchedulePause, ScheduleSpec as Spec, TaskId, TaskOptions, TaskTemplate,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    BackoffSpec, TaskSubmit, Time, as_text,
    backoff::millis,
    payload::{raw, show},
    task_view::details,
};
use crate::{
    ApiError, ErrorReason,
    operation::{NextFiring, SchedulePage, ShownSchedule},
};

/// The settings of a schedule. All but `timing` may be left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// A cron expression of five or six fields, a name such as `@daily`, or `@every DURATION`.
    #[schema(example = "30 2 * * *")]
    pub timing: String,
    /// The IANA time zone of a cron expression; UTC when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<String>,
    /// The rule does not fire before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Time>,
    /// The rule does not fire at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Time>,
    /// A time at which an interval fires; 1970-01-01T00:00:00Z when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Time>,
    /// Tasks are due up to this much later than their firing, and always before the next one; at most a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// What happens to missed firings: `none`, `latest` (the default) or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "latest")]
    pub catch_up: Option<String>,
    /// With `all`: how many of the latest ones are made up for, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_max: Option<u32>,
    /// How late a firing counts as missed; a minute when absent, at most an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// What happens to a firing while tasks of earlier firings are unfinished: `skip`, `queue_one` (the default), `allow`
    /// or `cancel_previous`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "queue_one")]
    pub overlap: Option<String>,
    /// How many times the rule fires; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firings_max: Option<u64>,
    /// The task of each firing: a submit without `id`, `key`, `run_at` and `delay_ms`, and with at most 16384 bytes of
    /// payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskSubmit>,
}

impl ScheduleSpec {
    /// The settings, not checked yet: [`crate::check::schedule`].
    pub fn into_spec(self, job: &JobName) -> Result<Spec, ApiError> {
        let overlap = self.overlap.map(|name| {
            let unknown = || {
                let names = Overlap::ALL.map(Overlap::name).join(", ");
                ApiError::invalid(
                    "overlap",
                    ErrorReason::InvalidValue,
                    format!("must be one of {names}"),
                )
            };
            Overlap::from_name(&name).ok_or_else(unknown)
        });
        let task = self.task.map(|task| {
            let new_id = || TaskId::from_bytes([0; 16]);
            let task = task.into_task(job.clone(), new_id);
            task.map_err(|error| error.within("task"))
        });
        Ok(Spec {
            info: Arc::from(self.info.unwrap_or_default()),
            rule: RuleSpec {
                timing: self.timing,
                zone: self.zone,
                start: self.start.map(Into::into),
                end: self.end.map(Into::into),
                anchor: self.anchor.map(Into::into),
            },
            jitter: Duration::from_millis(self.jitter_ms.unwrap_or(0)),
            catch_up: catch_up_policy(self.catch_up.as_deref(), self.catch_up_max, self.grace_ms)?,
            overlap: overlap.transpose()?.unwrap_or_default(),
            firings_max: self.firings_max,
            template: match task.transpose()? {
                Some(task) => template(task, job)?,
                None => TaskTemplate::default(),
            },
        })
    }
}

/// The template that a task describes.
pub(crate) fn template(task: NewTask, job: &JobName) -> Result<TaskTemplate, ApiError> {
    let refused = |field: &'static str| {
        let message = "each task of a schedule has its own";
        Err(ApiError::invalid(
            field,
            ErrorReason::NotApplicable,
            message,
        ))
    };
    if task.id_is_given {
        return refused("task.id");
    }
    if task.due != Due::Now {
        return refused("task.run_at");
    }
    if task.job != *job {
        let message = format!("the tasks of this schedule are tasks of '{job}'");
        return Err(ApiError::invalid(
            "task.job",
            ErrorReason::NotApplicable,
            message,
        ));
    }
    Ok(TaskTemplate {
        priority: task.priority,
        weight: task.weight,
        payload: task.payload,
        options: task.options,
    })
}

/// The catch-up policy, by the name of what happens to missed firings.
pub(crate) fn catch_up_policy(
    name: Option<&str>,
    max: Option<u32>,
    grace_ms: Option<u64>,
) -> Result<CatchUpPolicy, ApiError> {
    let default = CatchUpPolicy::default();
    let catch_up = match (name, max) {
        (Some("all"), Some(max)) => CatchUp::All { max },
        (Some("all"), None) => {
            let message = "catch_up 'all' needs it";
            return Err(ApiError::invalid(
                "catch_up_max",
                ErrorReason::MissingField,
                message,
            ));
        }
        (_, Some(_)) => {
            let message = "only catch_up 'all' has it";
            return Err(ApiError::invalid(
                "catch_up_max",
                ErrorReason::NotApplicable,
                message,
            ));
        }
        (None, None) => default.catch_up(),
        (Some("none"), None) => CatchUp::None,
        (Some("latest"), None) => CatchUp::Latest,
        (Some(_), None) => {
            let message = "must be one of none, latest, all";
            return Err(ApiError::invalid(
                "catch_up",
                ErrorReason::InvalidValue,
                message,
            ));
        }
    };
    let grace = grace_ms.map_or(default.grace(), Duration::from_millis);
    CatchUpPolicy::new(catch_up, grace).map_err(|error| {
        let field = match error {
            dueline_domain::CatchUpError::Cap => "catch_up_max",
            dueline_domain::CatchUpError::Grace => "grace_ms",
        };
        ApiError::invalid(field, ErrorReason::OutOfRange, error)
    })
}

/// A schedule with everything known about it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScheduleView {
    /// Its job.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "send-mail")]
    pub job: JobName,
    /// Its name, unique within the job.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "nightly")]
    pub name: ScheduleName,
    /// What it is for.
    pub info: String,
    /// `active`, `paused`, or `ended` when its rule does not fire again.
    #[schema(example = "active")]
    pub status: String,
    /// When it fires.
    #[schema(example = "30 2 * * *")]
    pub timing: String,
    /// The time zone of a cron expression; UTC when null.
    pub zone: Option<String>,
    /// The rule does not fire before this time.
    pub start: Option<Time>,
    /// The rule does not fire at or after this time.
    pub end: Option<Time>,
    /// A time at which an interval fires.
    pub anchor: Option<Time>,
    /// Tasks are due up to this much later than their firing.
    pub jitter_ms: u64,
    /// What happens to missed firings.
    pub catch_up: String,
    /// How many of them are made up for, with `all`.
    pub catch_up_max: Option<u32>,
    /// How late a firing counts as missed.
    pub grace_ms: u64,
    /// What happens to a firing while tasks of earlier firings are unfinished.
    pub overlap: String,
    /// How many times the rule fires.
    pub firings_max: Option<u64>,
    /// The task of each firing.
    pub task: TemplateView,
    /// Set while the rule does not fire.
    pub paused: Option<PauseView>,
    /// The next firing.
    pub next_at: Option<Time>,
    /// The next firings, of which a list shows only the first.
    pub next: Vec<NextView>,
    /// The latest firing that created a task.
    pub last_at: Option<Time>,
    /// Firings whose tasks were unfinished when a consumer last read them; the latest ones.
    pub active: Vec<FiringTaskView>,
    /// A firing that waits for the end of those.
    pub queued_at: Option<Time>,
    /// Requested firings that no consumer has carried out yet.
    pub triggers: Vec<Time>,
    /// Requested ranges that no consumer has carried out yet.
    pub backfills: Vec<RangeView>,
    /// How many firings there were.
    pub counts: CountsView,
    /// The latest firings, oldest first.
    pub recent: Vec<FiringView>,
    /// Who created it.
    pub created_by: Option<String>,
    /// When it was created.
    pub created_at: Time,
    /// When it last changed.
    pub changed_at: Time,
}

/// The task of each firing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TemplateView {
    /// Its name for people.
    pub name: Option<String>,
    /// A JSON object for people; empty when none was given.
    #[schema(value_type = Object)]
    pub details: Box<RawValue>,
    /// Words to filter by.
    pub tags: Vec<String>,
    /// Higher goes first.
    pub priority: i16,
    /// What it counts against a worker's concurrency.
    pub weight: u16,
    /// What the handler gets, if it is JSON.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// What the handler gets, if it is not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Runs after the first, instead of the job's.
    pub retries_max: Option<u32>,
    /// Waits of the standard class, instead of the job's.
    pub backoff: Option<BackoffSpec>,
    /// Heartbeat timeout instead of the job's.
    pub heartbeat_timeout_ms: Option<u64>,
    /// What a heartbeat adds, instead of the job's.
    pub heartbeat_increment_ms: Option<u64>,
    /// Longest run, instead of the job's.
    pub run_timeout_ms: Option<u64>,
}

/// Why a schedule does not fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseView {
    /// Since when.
    pub at: Time,
    /// Who paused it.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// A firing to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextView {
    /// When.
    pub at: Time,
    /// The same as local time of the rule's zone.
    #[schema(example = "2026-11-23T02:30:00+01:00")]
    pub local: String,
}

/// A firing and its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FiringTaskView {
    /// The nominal time.
    pub nominal_at: Time,
    /// The task.
    #[serde(default, with = "as_text::option")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub id: Option<TaskId>,
}

/// A range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeView {
    /// Where it begins.
    pub from: Time,
    /// Where it ends; not part of it.
    pub to: Time,
}

/// How many firings there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountsView {
    /// Firings of the rule that were carried out or queued.
    pub fired: u64,
    /// Tasks created, also for requested firings.
    pub created: u64,
    /// Firings that no consumer carried out in time and that are not made up for.
    pub missed: u64,
    /// Firings skipped because of the overlap policy.
    pub skipped: u64,
    /// Firings whose task was refused.
    pub failed: u64,
    /// Tasks created again because they were missing.
    pub repaired: u64,
}

/// What became of one firing, or of several in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FiringView {
    /// Nominal time of the first.
    pub first_at: Time,
    /// Nominal time of the last.
    pub last_at: Time,
    /// How many.
    pub count: u64,
    /// `created`, `missed`, `skipped`, `paused`, `dropped` or `failed`.
    #[schema(example = "created")]
    pub end: String,
    /// Why, where `end` does not say it.
    pub info: Option<String>,
    /// The task, of a single firing that created one.
    #[serde(default, with = "as_text::option")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub task: Option<TaskId>,
}

/// Schedules of a job, by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScheduleList {
    /// The schedules.
    pub schedules: Vec<ScheduleView>,
    /// The `after` of the next page; null at the end.
    pub next: Option<String>,
}

/// Why a schedule is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl TryFrom<ShownSchedule> for ScheduleView {
    type Error = ApiError;

    fn try_from(shown: ShownSchedule) -> Result<Self, ApiError> {
        let ShownSchedule {
            schedule,
            next,
            tasks,
        } = shown;
        let status = match (&schedule.paused, schedule.next_at) {
            (Some(_), _) => "paused",
            (None, Some(_)) => "active",
            (None, None) => "ended",
        };
        let (spec, counts) = (schedule.spec, schedule.counts);
        let (catch_up, catch_up_max) = match spec.catch_up.catch_up() {
            CatchUp::None => ("none", None),
            CatchUp::Latest => ("latest", None),
            CatchUp::All { max } => ("all", Some(max)),
        };
        let recent: Vec<FiringView> = schedule
            .recent
            .iter()
            .map(|record| {
                let task = tasks.get(&record.first).filter(|_| record.count == 1);
                FiringView::new(record, task.copied())
            })
            .collect();
        let created = |firing: &&FiringView| firing.end == "created";
        Ok(Self {
            job: schedule.job,
            name: schedule.name,
            info: spec.info.to_string(),
            status: status.to_owned(),
            timing: spec.rule.timing,
            zone: spec.rule.zone,
            start: spec.rule.start.map(Into::into),
            end: spec.rule.end.map(Into::into),
            anchor: spec.rule.anchor.map(Into::into),
            jitter_ms: millis(spec.jitter),
            catch_up: catch_up.to_owned(),
            catch_up_max,
            grace_ms: millis(spec.catch_up.grace()),
            overlap: spec.overlap.name().to_owned(),
            firings_max: spec.firings_max,
            task: TemplateView::new(&spec.template)?,
            paused: schedule.paused.map(Into::into),
            next_at: schedule.next_at.map(Into::into),
            next: next.into_iter().map(Into::into).collect(),
            last_at: recent
                .iter()
                .filter(created)
                .map(|firing| firing.last_at)
                .max(),
            active: schedule
                .active
                .into_iter()
                .map(|nominal_at| FiringTaskView {
                    nominal_at: nominal_at.into(),
                    id: tasks.get(&nominal_at).copied(),
                })
                .collect(),
            queued_at: schedule.queued.map(|queued| queued.nominal_at.into()),
            triggers: schedule.triggers.into_iter().map(Into::into).collect(),
            backfills: schedule
                .backfills
                .into_iter()
                .map(|range| RangeView {
                    from: range.from.into(),
                    to: range.to.into(),
                })
                .collect(),
            counts: CountsView {
                fired: counts.fired,
                created: counts.created,
                missed: counts.missed,
                skipped: counts.skipped,
                failed: counts.failed,
                repaired: counts.repaired,
            },
            recent,
            created_by: text(&schedule.created_by),
            created_at: schedule.created_at.into(),
            changed_at: schedule.changed_at.into(),
        })
    }
}

impl TemplateView {
    fn new(template: &TaskTemplate) -> Result<Self, ApiError> {
        let nothing = TaskOptions::default();
        let options = template.options.as_deref().unwrap_or(&nothing);
        let payload = show(&template.payload, options.content_type.as_deref());
        let overrides = options.overrides.clone().unwrap_or_default();
        let owned = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
        Ok(Self {
            name: owned(&options.name),
            details: details(options.details.as_deref())?,
            tags: options.tags.iter().map(ToString::to_string).collect(),
            priority: template.priority.get(),
            weight: template.weight.get(),
            payload: payload.json,
            payload_base64: payload.base64,
            content_type: owned(&options.content_type),
            retries_max: overrides.retries_max,
            backoff: overrides.backoff.map(Into::into),
            heartbeat_timeout_ms: overrides.heartbeat_timeout.map(millis),
            heartbeat_increment_ms: overrides.heartbeat_increment.map(millis),
            run_timeout_ms: overrides.run_timeout.map(millis),
        })
    }
}

impl From<SchedulePause> for PauseView {
    fn from(pause: SchedulePause) -> Self {
        Self {
            at: pause.at.into(),
            by: text(&pause.by),
            reason: text(&pause.reason),
        }
    }
}

impl From<NextFiring> for NextView {
    fn from(firing: NextFiring) -> Self {
        Self {
            at: firing.at.into(),
            local: firing.local,
        }
    }
}

impl FiringView {
    fn new(record: &FiringRecord, task: Option<TaskId>) -> Self {
        Self {
            first_at: record.first.into(),
            last_at: record.last.into(),
            count: record.count,
            end: record.end.name().to_owned(),
            info: text(&record.info),
            task,
        }
    }
}

impl TryFrom<SchedulePage> for ScheduleList {
    type Error = ApiError;

    fn try_from(page: SchedulePage) -> Result<Self, ApiError> {
        let schedules = page.schedules.into_iter().map(TryInto::try_into);
        Ok(Self {
            schedules: schedules.collect::<Result<_, _>>()?,
            next: page.next.map(|next| next.to_string()),
        })
    }
}
