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
        }
    }
}

impl TryFrom<proto::Family> for Family {
    type Error = ApiError;

    fn try_from(family: proto::Family) -> Result<Self, ApiError> {
        let after = family.after.into_iter().map(Predecessor::try_from);
        Ok(Self {
            after: after.collect::<Result<_, _>>()?,
            trigger_on: enums::trigger_on("trigger_on", family.trigger_on)?,
            has_followers: family.has_followers,
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

impl TryFrom<proto::Predecessor> for Predecessor {
    type Error = ApiError;

    fn try_from(predecessor: proto::Predecessor) -> Result<Self, ApiError> {
        let end = predecessor.end.map(|end| enums::task_end("after", end));
        Ok(Self {
            task: TaskAddress {
                job: field::job_name("after", &predecessor.job)?,
                id: field::task_id("after", &predecessor.id)?,
            },
            end: end.transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::{JobName, TaskEnd, TaskId, TriggerOn};

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
            };
            let message = proto::Family::from(family.clone());
            assert_eq!(Family::try_from(message), Ok(family));
        }
    }
}
