//! What connects a task with other tasks.

use dueline_domain::{EdgeKind, Family, FromRun, Predecessor, TaskAddress, Timestamp, Token};

use super::{enums, field};
use crate::{
    ApiError,
    grpc::proto,
    operation::{FamilyMember, PathStep},
};

impl From<Family> for proto::Family {
    fn from(family: Family) -> Self {
        Self {
            after: family.after.into_iter().map(Into::into).collect(),
            trigger_on: proto::TriggerOn::from(family.trigger_on).into(),
            has_followers: family.has_followers,
            parent: family.parent.map(Into::into),
            fail_on_child: family.fail_on_child,
            children: proto::Children::from(family.children).into(),
            children_failed: family.children_failed,
            depth: family.depth,
            open_children: family.open_children,
            from_run: family.from_run.map(Into::into),
        }
    }
}

impl From<FromRun> for proto::FromRun {
    fn from(run: FromRun) -> Self {
        let token = Some(run.token).filter(|token| *token != Token::HIDDEN);
        Self {
            job: run.task.job.to_string(),
            id: run.task.id.to_string(),
            token: token.map(Token::get),
            end: run.end.map(|end| proto::TaskEnd::from(end).into()),
        }
    }
}

impl TryFrom<proto::FromRun> for FromRun {
    type Error = ApiError;

    fn try_from(run: proto::FromRun) -> Result<Self, ApiError> {
        let token = run.token.map(|token| field::token("from_run", token));
        let end = run.end.map(|end| enums::task_end("from_run", end));
        Ok(Self {
            task: TaskAddress {
                job: field::job_name("from_run", &run.job)?,
                id: field::task_id("from_run", &run.id)?,
            },
            token: token.transpose()?.unwrap_or(Token::HIDDEN),
            end: end.transpose()?,
        })
    }
}

impl TryFrom<proto::Family> for Family {
    type Error = ApiError;

    fn try_from(family: proto::Family) -> Result<Self, ApiError> {
        let after = family.after.into_iter();
        let after = after.map(|one| predecessor("after", one));
        Ok(Self {
            after: after.collect::<Result<_, _>>()?,
            trigger_on: enums::trigger_on("trigger_on", family.trigger_on)?,
            has_followers: family.has_followers,
            parent: family
                .parent
                .map(|one| predecessor("parent", one))
                .transpose()?,
            fail_on_child: family.fail_on_child,
            children: enums::children("children", family.children)?,
            children_failed: family.children_failed,
            depth: family.depth,
            open_children: family.open_children,
            from_run: family.from_run.map(FromRun::try_from).transpose()?,
            staged: None,
        })
    }
}

impl From<Predecessor> for proto::Predecessor {
    fn from(predecessor: Predecessor) -> Self {
        let end = predecessor.end.map(proto::TaskEnd::from);
        Self {
            job: predecessor.task.job.to_string(),
            id: predecessor.task.id.to_string(),
            end: end.map(Into::into),
        }
    }
}

/// A task that another one waits for; `field` says which one.
fn predecessor(
    field: &'static str,
    predecessor: proto::Predecessor,
) -> Result<Predecessor, ApiError> {
    let end = predecessor.end.map(|end| enums::task_end(field, end));
    Ok(Predecessor {
        task: TaskAddress {
            job: field::job_name(field, &predecessor.job)?,
            id: field::task_id(field, &predecessor.id)?,
        },
        end: end.transpose()?,
    })
}

impl From<FamilyMember> for proto::FamilyMember {
    fn from(member: FamilyMember) -> Self {
        let relation = match &member.above {
            None => proto::Relation::Unspecified,
            Some((EdgeKind::Follower, _)) => proto::Relation::Follower,
            Some((EdgeKind::Child, _)) => proto::Relation::Child,
            Some((EdgeKind::Staged, _)) => proto::Relation::Staged,
        };
        let above = member.above.as_ref().map(|(_, task)| task);
        Self {
            above_job: above.map(|task| task.job.to_string()),
            above_id: above.map(|task| task.id.to_string()),
            job: member.task.job.to_string(),
            id: member.task.id.to_string(),
            level: member.level,
            relation: relation.into(),
            state: member.state.map(enums::state_number),
            name: field::string_opt(member.name),
            error: field::string_opt(member.error),
            children: proto::Children::from(member.children).into(),
        }
    }
}

impl TryFrom<proto::FamilyMember> for FamilyMember {
    type Error = ApiError;

    fn try_from(member: proto::FamilyMember) -> Result<Self, ApiError> {
        let relation = proto::Relation::try_from(member.relation).unwrap_or_default();
        let kind = match relation {
            proto::Relation::Unspecified => None,
            proto::Relation::Follower => Some(EdgeKind::Follower),
            proto::Relation::Child => Some(EdgeKind::Child),
            proto::Relation::Staged => Some(EdgeKind::Staged),
        };
        let above = |kind| {
            let job = field::required("member.above_job", member.above_job.as_deref())?;
            let id = field::required("member.above_id", member.above_id.as_deref())?;
            let task = TaskAddress {
                job: field::job_name("member.above_job", job)?,
                id: field::task_id("member.above_id", id)?,
            };
            Ok::<_, ApiError>((kind, task))
        };
        let state = |state| enums::state_kind("member.state", state);
        Ok(Self {
            task: TaskAddress {
                job: field::job_name("member.job", &member.job)?,
                id: field::task_id("member.id", &member.id)?,
            },
            level: member.level,
            above: kind.map(above).transpose()?,
            state: member.state.map(state).transpose()?,
            name: field::text_opt(member.name),
            error: field::text_opt(member.error),
            children: enums::children("member.children", member.children)?,
        })
    }
}

impl From<PathStep> for proto::PathStep {
    fn from(step: PathStep) -> Self {
        Self {
            job: step.task.job.to_string(),
            id: step.task.id.to_string(),
            state: enums::state_number(step.state),
            started_at_ms: step.started_at.map(Timestamp::millis),
            finished_at_ms: step.finished_at.map(Timestamp::millis),
            expected_at_ms: step.expected_at.map(Timestamp::millis),
        }
    }
}

impl TryFrom<proto::PathStep> for PathStep {
    type Error = ApiError;

    fn try_from(step: proto::PathStep) -> Result<Self, ApiError> {
        let time = |millis: Option<i64>| {
            let time = millis.map(|millis| field::timestamp("critical_path", millis));
            time.transpose()
        };
        Ok(Self {
            task: TaskAddress {
                job: field::job_name("critical_path.job", &step.job)?,
                id: field::task_id("critical_path.id", &step.id)?,
            },
            state: enums::state_kind("critical_path.state", step.state)?,
            started_at: time(step.started_at_ms)?,
            finished_at: time(step.finished_at_ms)?,
            expected_at: time(step.expected_at_ms)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::{Children, JobName, TaskEnd, TaskId, TriggerOn};

    use super::*;

    #[test]
    fn f_095_a_family_is_the_same_after_it_was_a_message() {
        let task = TaskAddress {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([7; 16]),
        };
        let ended = |end| Predecessor {
            task: task.clone(),
            end: Some(end),
        };
        for trigger_on in TriggerOn::ALL {
            let mut after = vec![Predecessor::open(task.clone())];
            after.extend(TaskEnd::ALL.map(ended));
            let family = Family {
                after,
                trigger_on,
                has_followers: true,
                parent: Some(ended(TaskEnd::Failed)),
                children: Children::Closing,
                children_failed: 3,
                fail_on_child: true,
                depth: 9,
                open_children: Some(4),
                from_run: Some(FromRun {
                    task: task.clone(),
                    token: Token::from_random(9),
                    end: Some(TaskEnd::Discarded),
                }),
                // Only services know it.
                staged: None,
            };
            let message = proto::Family::from(family.clone());
            assert_eq!(Family::try_from(message), Ok(family));
        }
    }
}
