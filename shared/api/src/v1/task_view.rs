//! Everything known about a task.

use std::sync::Arc;

use dueline_domain::{
    Children, JobName, Lease, Owed, Policy, ScheduleName, StateKind, Task, TaskId, TaskOptions,
    WorkerId,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    BackoffSpec, FromRunView, PredecessorView, RetriesMax, Time, UniqueView, as_text,
    backoff::millis,
    payload::{Shown, raw, show, show_readable},
};
use crate::{
    ApiError, ErrorKind, ErrorReason,
    operation::{TaskRun, TaskRuns},
};

/// A task with everything known about it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// The job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The queue it goes through.
    pub queue: String,
    /// `waiting`, `new`, `enqueued`, `claimed`, `processing`, `retriable`, `succeeded`, `failed`, `cancelled`,
    /// `trashed` or `dropped`.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "enqueued")]
    pub state: StateKind,
    /// The state in few words: `pending`, `running`, `succeeded`, `failed` or `cancelled`.
    #[schema(example = "pending")]
    pub status: String,
    /// The state on a job board: `unclaimed`, `claimed` or `complete`.
    #[schema(example = "unclaimed")]
    pub board: String,
    /// Its name for people.
    pub name: Option<String>,
    /// A JSON object for people; empty when none was given.
    #[schema(value_type = Object)]
    pub details: Box<RawValue>,
    /// Words to filter by.
    pub tags: Vec<String>,
    /// Its idempotency key.
    pub key: Option<String>,
    /// How long it holds its key; only present if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueView>,
    /// Its fairness key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_key: Option<String>,
    /// Higher goes first.
    pub priority: i16,
    /// The name of this priority, when it has one.
    pub priority_name: Option<String>,
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
    pub content_type: String,
    /// What later runs get instead of the payload, if it is JSON.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub checkpoint: Option<Box<RawValue>>,
    /// What later runs get instead of the payload, if it is text but not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_text: Option<String>,
    /// What later runs get instead of the payload, if it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_base64: Option<String>,
    /// What the successful run returned, if it is JSON.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub result: Option<Box<RawValue>>,
    /// What the successful run returned, if it is text but not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_text: Option<String>,
    /// What the successful run returned, if it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
    /// Why it last failed, was cancelled, trashed or dropped.
    pub error: Option<String>,
    /// When it was first due. Retries do not change it, but a user may.
    pub run_at: Time,
    /// When it was first due as it was submitted; only present after a user has changed that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_run_at: Option<Time>,
    /// The schedule that created it.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub schedule: Option<ScheduleName>,
    /// The nominal time of the firing that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominal_at: Option<Time>,
    /// When the scheduler processes it next: its due time, the time of its next try, the end of its lease, or the next
    /// try of what it owes.
    pub trigger_at: Option<Time>,
    /// When it was submitted.
    pub created_at: Time,
    /// Who submitted it.
    pub created_by: Option<String>,
    /// When it last changed.
    pub changed_at: Time,
    /// When its latest run began.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// Runs that used up a try.
    pub tries: u32,
    /// Runs after the first.
    pub retries_max: RetriesMax,
    /// Claims lost before a run began.
    pub losses: u32,
    /// How many lost claims it survives.
    pub losses_max: u32,
    /// Number of the run in progress, or of the latest one; 0 for the first. No two runs of a task have the same number,
    /// also after an abandon or a redrive.
    pub attempt: Option<u32>,
    /// Waits after a failure of the standard class.
    pub backoff: BackoffSpec,
    /// How long a run holds without a heartbeat.
    pub heartbeat_timeout_ms: u64,
    /// What a heartbeat adds.
    pub heartbeat_increment_ms: u64,
    /// Longest run, even with heartbeats.
    pub run_timeout_ms: Option<u64>,
    /// Who owns it.
    #[serde(default, with = "as_text::option")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<WorkerId>,
    /// Who owned it when it ended: who finished, failed, trashed or lost it.
    #[serde(default, with = "as_text::option")]
    #[schema(value_type = Option<String>)]
    pub last_owner: Option<WorkerId>,
    /// When the owner took it.
    pub claimed_at: Option<Time>,
    /// When the owner was last heard of.
    pub heartbeat_at: Option<Time>,
    /// When ownership lapses without another heartbeat; null for a claim that never expires.
    pub expires_at: Option<Time>,
    /// Whether its claim never expires: only its owner, or an operator, ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_expires: bool,
    /// When its run timeout ends: the worker stops the run, and no heartbeat helps.
    pub deadline_at: Option<Time>,
    /// Whether a user asked to stop the run in progress.
    pub cancel_requested: bool,
    /// Runs that are over, oldest first.
    pub runs: Vec<RunView>,
    /// Runs left out of the list, between its first and its second.
    pub runs_dropped: u32,
    /// The tasks that it waits for, or has waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<PredecessorView>,
    /// Which of their ends let it go on: `success`, `failure` or `always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_on: Option<String>,
    /// Its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<PredecessorView>,
    /// The run from inside which it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_run: Option<FromRunView>,
    /// What is known of its children: `open` (some may not have ended), `closing` or `closed`; absent without children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<String>,
    /// How many of its children have not ended; 1000 stands for any greater number. Only shown with a single task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_children: Option<u32>,
    /// How many of its children did not succeed; known once they are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children_failed: Option<u32>,
    /// What the finished task has yet to cause beyond itself; it is not deleted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<OwedView>,
}

/// What a finished task has yet to cause beyond itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwedView {
    /// What is owed: `staged`, what its runs have staged goes on or is discarded; `children`, its children are notified that its run is over; `release`, its followers of its end;
    /// `leave`, its parent of its end; `deliver`, the delivery of its record to the sink of its job; `close`, its
    /// family is closed when all children have ended.
    #[schema(example = json!(["deliver"]))]
    pub effects: Vec<String>,
    /// When it is tried next.
    pub next_try_at: Time,
    /// How many times it has failed.
    pub failures: u32,
    /// Why it last failed.
    pub error: Option<String>,
}

impl From<&Owed> for OwedView {
    fn from(owed: &Owed) -> Self {
        let names = owed.effects.iter().map(|effect| effect.name().to_owned());
        Self {
            effects: names.collect(),
            next_try_at: owed.trigger_at.into(),
            failures: owed.failures,
            error: owed.error.as_ref().map(ToString::to_string),
        }
    }
}

/// One run that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// Its number; 0 for the first.
    pub attempt: u32,
    /// Who ran it; null for a successful run that an older version stored.
    #[serde(default, with = "as_text::option")]
    #[schema(value_type = Option<String>)]
    pub worker: Option<WorkerId>,
    /// When it began.
    pub started_at: Time,
    /// When it was over.
    pub finished_at: Time,
    /// `succeeded`, `retriable`, `fatal`, `lost`, `abandoned`, `cancelled` or `trashed`.
    #[schema(example = "retriable")]
    pub end: String,
    /// What it returned or what went wrong, as text.
    pub info: String,
}

impl From<TaskRun> for RunView {
    fn from(run: TaskRun) -> Self {
        Self {
            attempt: run.attempt,
            worker: run.worker,
            started_at: run.started_at.into(),
            finished_at: run.finished_at.into(),
            end: run.end.name().to_owned(),
            info: run.info.to_string(),
        }
    }
}

impl TaskView {
    /// The record of a finished task for the sink of its job: its view on one line of JSON, without what it still owes.
    pub fn record(task: &Task, job: &Policy) -> Result<Vec<u8>, ApiError> {
        let view = Self {
            trigger_at: None,
            owed: None,
            ..Self::new(task, job)?
        };
        let mut json = serde_json::to_vec(&view).map_err(|error| {
            ApiError::new(
                ErrorKind::Internal,
                ErrorReason::Internal,
                error.to_string(),
            )
        })?;
        // Values that a client sent as JSON are shown as they were sent. JSON has line breaks only between its tokens.
        for byte in json
            .iter_mut()
            .filter(|byte| matches!(**byte, b'\n' | b'\r'))
        {
            *byte = b' ';
        }
        Ok(json)
    }

    /// The view of a task; `job` is the policy of its job.
    pub fn new(task: &Task, job: &Policy) -> Result<Self, ApiError> {
        let nothing = TaskOptions::default();
        let options = task.options.as_deref().unwrap_or(&nothing);
        let firing = options.firing.as_ref();
        let policy = task.policy(job);
        let lease = task.lease();
        let ends_at = lease.filter(|lease| !lease.never_ends());
        let ends_at = ends_at.map(Lease::ends_at);
        let trigger_at = match lease {
            Some(_) => ends_at,
            None => task.trigger_at(),
        };
        let kind = task.kind();
        let runs = TaskRuns::of(task);
        let family = task.family();
        let after = family.map_or(&[][..], |family| &family.after);
        let parent = family.filter(|family| family.children != Children::None);
        let closed = parent.filter(|family| family.children == Children::Closed);
        let rule = family.map(|family| family.trigger_on).unwrap_or_default();
        let payload = show(&task.payload, options.content_type.as_deref());
        let content_type = match &options.content_type {
            Some(named) => named.to_string(),
            None if payload.json.is_some() => "application/json".to_owned(),
            None => "application/octet-stream".to_owned(),
        };
        let optional = |bytes: Option<&bytes::Bytes>| {
            bytes.map_or_else(<(Shown, _)>::default, |bytes| show_readable(bytes))
        };
        let (checkpoint, checkpoint_text) = optional(task.checkpoint.as_ref());
        let (result, result_text) = optional(task.result.as_ref());
        Ok(Self {
            id: task.id,
            job: task.job.clone(),
            queue: task.job.to_string(),
            state: kind,
            status: kind.coarse().name().to_owned(),
            board: kind.board().name().to_owned(),
            name: owned(options.name.as_ref()),
            details: details(options.details.as_deref())?,
            tags: options.tags.iter().map(ToString::to_string).collect(),
            key: owned(options.key.as_ref()),
            unique: options.unique.as_deref().map(Into::into),
            fairness_key: owned(options.fairness_key.as_ref()),
            priority: task.priority.get(),
            priority_name: task.priority.name().map(str::to_owned),
            weight: task.weight.get(),
            payload: payload.json,
            payload_base64: payload.base64,
            content_type,
            checkpoint: checkpoint.json,
            checkpoint_text,
            checkpoint_base64: checkpoint.base64,
            result: result.json,
            result_text,
            result_base64: result.base64,
            error: owned(task.error.as_ref()),
            run_at: task.run_at.into(),
            original_run_at: options.original_run_at.map(Into::into),
            schedule: firing.map(|firing| firing.schedule.clone()),
            nominal_at: firing.map(|firing| firing.nominal_at.into()),
            trigger_at: trigger_at.map(Into::into),
            created_at: task.created_at.into(),
            created_by: owned(options.created_by.as_ref()),
            changed_at: task.changed_at.into(),
            started_at: task.started_at.map(Into::into),
            finished_at: task.finished_at.map(Into::into),
            tries: task.tries,
            retries_max: policy.retry.retries_max.into(),
            losses: task.losses,
            losses_max: policy.losses_max,
            attempt: task.latest_attempt(),
            backoff: policy.retry.standard.into(),
            heartbeat_timeout_ms: millis(policy.heartbeat_timeout),
            heartbeat_increment_ms: millis(policy.heartbeat_increment),
            run_timeout_ms: policy.run_timeout.map(millis),
            owner: lease.map(|lease| lease.worker.clone()),
            last_owner: task.last_owner.clone(),
            claimed_at: lease.map(|lease| lease.claimed_at.into()),
            heartbeat_at: lease.map(|lease| lease.heartbeat_at.into()),
            expires_at: ends_at.map(Into::into),
            never_expires: lease.is_some_and(Lease::never_ends),
            deadline_at: lease.and_then(Lease::run_ends_at).map(Into::into),
            cancel_requested: task.cancel_requested,
            runs: runs.runs.into_iter().map(Into::into).collect(),
            runs_dropped: runs.dropped,
            after: after.iter().map(Into::into).collect(),
            trigger_on: (!after.is_empty()).then(|| rule.name().to_owned()),
            parent: family.and_then(|family| family.parent.as_ref().map(Into::into)),
            from_run: family.and_then(|family| family.from_run.as_ref().map(Into::into)),
            children: parent.map(|family| family.children.name().to_owned()),
            open_children: parent.and_then(|family| family.open_children),
            children_failed: closed.map(|family| family.children_failed),
            owed: task.owed.as_deref().map(Into::into),
        })
    }
}

fn owned(text: Option<&Arc<str>>) -> Option<String> {
    text.map(ToString::to_string)
}

pub(super) fn details(text: Option<&str>) -> Result<Box<RawValue>, ApiError> {
    RawValue::from_string(text.unwrap_or("{}").to_owned()).map_err(|error| {
        let message = format!("details are no JSON: {error}");
        ApiError::new(ErrorKind::Internal, ErrorReason::Corrupt, message)
    })
}

/// A page of tasks, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskView>,
    /// What to send as `cursor` for the next page; null at the end.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use dueline_domain::{NewTask, RunEnd, RunRecord, State, Timestamp, Token, WriteId};

    fn task() -> Task {
        let new = NewTask::now(
            TaskId::from_bytes([7; 16]),
            JobName::parse("mail").unwrap(),
            Bytes::from_static(b"{\"a\":  1}"),
        );
        let (token, write) = (Token::from_random(0xbeef), WriteId::from_random(0xfeed));
        new.into_task(
            &Policy::default(),
            Timestamp::clamped(1_000),
            token,
            write,
            true,
        )
    }

    fn json(task: &Task) -> serde_json::Value {
        let view = TaskView::new(task, &Policy::default()).unwrap();
        let text = serde_json::to_string(&view).unwrap();
        let back: TaskView = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn f_021_a_view_tells_everything_and_no_secret() {
        let view = json(&task());
        assert_eq!(view["state"], "enqueued");
        assert_eq!(view["status"], "pending");
        assert_eq!(view["board"], "unclaimed");
        assert_eq!(view["queue"], "mail");
        assert_eq!(view["priority_name"], "normal");
        assert_eq!(view["details"], serde_json::json!({}));
        assert_eq!(view["content_type"], "application/json");
        assert_eq!(view["run_at"], "1970-01-01T00:00:01.000Z");
        assert_eq!(view["retries_max"], 3);
        assert_eq!(view["attempt"], serde_json::Value::Null);
        let text = view.to_string();
        assert!(!text.contains("beef") && !text.contains("feed"), "{text}");
    }

    #[test]
    fn f_011_the_original_run_time_is_shown_once_it_differs() {
        let mut task = task();
        assert_eq!(json(&task).get("original_run_at"), None);
        task.options = Some(Box::new(TaskOptions {
            original_run_at: Some(Timestamp::clamped(500)),
            ..TaskOptions::default()
        }));
        let view = json(&task);
        assert_eq!(view["original_run_at"], "1970-01-01T00:00:00.500Z");
        assert_eq!(view["run_at"], "1970-01-01T00:00:01.000Z");
    }

    #[test]
    fn f_042_the_successful_run_is_the_last_of_the_history() {
        let worker = WorkerId::parse("w@1").unwrap();
        let abandoned = RunRecord {
            attempt: 0,
            worker: worker.clone(),
            started_at: Timestamp::clamped(1_000),
            finished_at: Timestamp::clamped(1_500),
            end: RunEnd::Abandoned,
            info: "".into(),
        };
        let mut task = task();
        task.state = State::Succeeded;
        // The abandoned run used no try, but it has a number.
        task.tries = 1;
        task.history.get_or_insert_default().push(abandoned);
        task.last_owner = Some(worker);
        task.started_at = Some(Timestamp::clamped(2_000));
        task.finished_at = Some(Timestamp::clamped(3_000));
        task.result = Some(Bytes::from_static("fertig ü".as_bytes()));
        task.checkpoint = Some(Bytes::from_static(b"\xff"));
        let view = json(&task);
        assert_eq!(view["result_text"], "fertig ü");
        assert_eq!(view.get("result_base64"), None);
        assert_eq!(view["checkpoint_base64"], "/w==");
        assert_eq!(view.get("checkpoint_text"), None);
        assert_eq!(
            (&view["attempt"], &view["last_owner"]),
            (&1.into(), &"w@1".into())
        );
        let run = &view["runs"][1];
        assert_eq!(run["end"], "succeeded");
        assert_eq!(
            (&run["attempt"], &run["worker"]),
            (&1.into(), &"w@1".into())
        );
        assert_eq!(run["info"], "fertig ü");
        assert_eq!(run["finished_at"], "1970-01-01T00:00:03.000Z");
    }
}
