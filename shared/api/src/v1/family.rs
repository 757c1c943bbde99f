//! What connects a task with other tasks.

use std::collections::BTreeMap;

use dueline_domain::{
    Children, EdgeKind, Family, FromRun, JobName, Predecessor, StateKind, TaskAddress, TaskEnd,
    TaskId, Token, TriggerOn,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Time, as_text};
use crate::{
    ApiError, ErrorReason,
    check::field,
    operation::{FamilyMember, FamilyPage, PathStep},
};

/// A task to wait for: a predecessor, or the parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PredecessorSpec {
    /// Its job; that of the task that waits when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The task.
    #[schema(value_type = uuid::Uuid)]
    pub id: String,
}

/// The run from inside which a task is submitted, as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FromRunSpec {
    /// The job of the task that runs.
    pub job: String,
    /// The task that runs.
    #[schema(value_type = uuid::Uuid)]
    pub id: String,
    /// The token of the run.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "00c0ffee00c0ffee")]
    pub token: Token,
}

/// The run from inside which the shown task was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FromRunView {
    /// The job of the task that ran.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task that ran.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// How the run ended, once the shown task has been notified: `succeeded`, or `discarded` if it did not.
    pub end: Option<String>,
}

impl From<&FromRun> for FromRunView {
    fn from(run: &FromRun) -> Self {
        Self {
            job: run.task.job.clone(),
            id: run.task.id,
            end: run.end.map(TaskEnd::name).map(str::to_owned),
        }
    }
}

/// The family of a submit; `None` if it asks for none.
pub(super) fn family(
    job: &JobName,
    parent: Option<PredecessorSpec>,
    after: Option<Vec<PredecessorSpec>>,
    trigger_on: Option<&str>,
    fail_on_child: bool,
    from_run: Option<FromRunSpec>,
) -> Result<Option<Box<Family>>, ApiError> {
    let rule = trigger_on.map(|name| {
        let unknown = || {
            let known = TriggerOn::ALL.map(TriggerOn::name).join(", ");
            let message = format!("must be one of {known}");
            ApiError::invalid("trigger_on", ErrorReason::InvalidValue, message)
        };
        TriggerOn::from_name(name).ok_or_else(unknown)
    });
    let predecessor = |field: &'static str, spec: PredecessorSpec| {
        let named = spec.job.map(|name| {
            JobName::parse(&name)
                .map_err(|error| ApiError::invalid(field, ErrorReason::InvalidName, error))
        });
        Ok(Predecessor::open(TaskAddress {
            job: named.transpose()?.unwrap_or_else(|| job.clone()),
            id: field::task_id(field, &spec.id)?,
        }))
    };
    let run = |run: FromRunSpec| {
        let job = JobName::parse(&run.job)
            .map_err(|error| ApiError::invalid("from_run", ErrorReason::InvalidName, error))?;
        let id = field::task_id("from_run", &run.id)?;
        Ok::<_, ApiError>(FromRun {
            task: TaskAddress { job, id },
            token: run.token,
            end: None,
        })
    };
    let after = after.unwrap_or_default().into_iter();
    let after = after.map(|one| predecessor("after", one));
    let family = Family {
        after: after.collect::<Result<_, ApiError>>()?,
        trigger_on: rule.transpose()?.unwrap_or_default(),
        parent: parent.map(|one| predecessor("parent", one)).transpose()?,
        fail_on_child,
        from_run: from_run.map(run).transpose()?,
        ..Family::default()
    };
    Ok((family != Family::default()).then(|| Box::new(family)))
}

/// A task that the shown one waits for, or has waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PredecessorView {
    /// Its job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// How it ended, once the task that waits has been notified: `succeeded`, `failed`, `cancelled`, `trashed`, `dropped`,
    /// `deleted`, `children_failed` or `discarded`.
    pub end: Option<String>,
}

impl From<&Predecessor> for PredecessorView {
    fn from(predecessor: &Predecessor) -> Self {
        Self {
            job: predecessor.task.job.clone(),
            id: predecessor.task.id,
            end: predecessor.end.map(TaskEnd::name).map(str::to_owned),
        }
    }
}

/// A page of the family of a task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FamilyView {
    /// The task, and everything that waits for it, each right below what it waits for. One that waits for several is shown
    /// once.
    pub members: Vec<MemberView>,
    /// How many members of this page are in each state.
    pub by_state: BTreeMap<String, u64>,
    /// What to send as `cursor` for the next page; null at the end.
    pub next: Option<String>,
    /// The chain of members that determined when the last member of the whole family ended, or will determine that; absent
    /// unless it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical_path: Vec<PathStepView>,
}

/// A member on the critical path of a family.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PathStepView {
    /// Its job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// Its state.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub state: StateKind,
    /// When its latest run began.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// When it will end, by the durations of other runs, if it has not ended.
    pub expected_at: Option<Time>,
}

impl From<PathStep> for PathStepView {
    fn from(step: PathStep) -> Self {
        Self {
            job: step.task.job,
            id: step.task.id,
            state: step.state,
            started_at: step.started_at.map(Into::into),
            finished_at: step.finished_at.map(Into::into),
            expected_at: step.expected_at.map(Into::into),
        }
    }
}

/// A task among those that wait for each other.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    /// Its job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// How far it is below the first.
    pub level: u32,
    /// What it is to the one above: `child`, `follower` or `staged` (submitted from inside a run of it); absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// The one above, as `job/id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
    /// Its state; `deleted` if it does not exist any more.
    pub state: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why it last failed, was cancelled, trashed or dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is known of its children: `open`, `closing` or `closed`; absent without children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<String>,
}

impl FamilyView {
    /// Adds the next page.
    pub fn add(&mut self, page: Self) {
        self.members.extend(page.members);
        for (state, count) in page.by_state {
            *self.by_state.entry(state).or_default() += count;
        }
        self.next = page.next;
    }
}

impl From<FamilyPage> for FamilyView {
    fn from(page: FamilyPage) -> Self {
        let members: Vec<MemberView> = page.members.into_iter().map(Into::into).collect();
        let mut by_state = BTreeMap::new();
        for member in &members {
            *by_state.entry(member.state.clone()).or_default() += 1;
        }
        Self {
            members,
            by_state,
            next: page.next.map(|next| next.to_string()),
            critical_path: page.critical_path.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<FamilyMember> for MemberView {
    fn from(member: FamilyMember) -> Self {
        let relation = member.above.as_ref().map(|(kind, _)| match kind {
            EdgeKind::Follower => "follower",
            EdgeKind::Child => "child",
            EdgeKind::Staged => "staged",
        });
        let children = Some(member.children).filter(|children| *children != Children::None);
        Self {
            relation: relation.map(str::to_owned),
            above: member.above.map(|(_, task)| task.to_string()),
            job: member.task.job,
            id: member.task.id,
            level: member.level,
            state: member.state.map_or("deleted", StateKind::name).to_owned(),
            name: member.name.map(|name| name.to_string()),
            error: member.error.map(|error| error.to_string()),
            children: children.map(|children| children.name().to_owned()),
        }
    }
}
