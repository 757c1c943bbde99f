//! What connects a task with other tasks.

use dueline_domain::{Family, Predecessor, TaskAddress};

use super::{enums, field};
use crate::{ApiError, grpc::proto};

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
        }
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
            };
            let message = proto::Family::from(family.clone());
            assert_eq!(Family::try_from(message), Ok(family));
        }
    }
}
