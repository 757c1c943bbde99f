//! The reference to a task on the command line: `job/uuid`.

use std::{fmt, str::FromStr};

use dueline_domain::{JobName, TaskId};

/// A task by its job and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskReference {
    /// The job.
    pub(crate) job: JobName,
    /// The task.
    pub(crate) id: TaskId,
}

impl FromStr for TaskReference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, id) = text
            .split_once('/')
            .ok_or("name a task by its job and its id, as in send-mail/0197b0c4-…")?;
        let job = JobName::parse(job).map_err(|error| error.to_string())?;
        let id = TaskId::parse(id).map_err(|error| error.to_string())?;
        Ok(Self { job, id })
    }
}

impl fmt::Display for TaskReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_by_its_job_and_its_id() {
        let text = "send-mail/0197b0c4-0000-7000-8000-000000000001";
        let task: TaskReference = text.parse().unwrap();
        assert_eq!(task.job.as_str(), "send-mail");
        assert_eq!(task.to_string(), text);
        for bad in [
            "send-mail",
            "0197b0c4-0000-7000-8000-000000000001",
            "a b/x",
            "mail/42",
        ] {
            assert!(bad.parse::<TaskReference>().is_err(), "{bad}");
        }
    }
}
