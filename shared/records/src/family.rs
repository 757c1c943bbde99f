//! What connects a task with other tasks, as text.

use dueline_domain::{
    Children, Family, FromRun, JobName, Predecessor, TaskAddress, TaskEnd, TaskId, Token, TriggerOn,
};
use serde::{Deserialize, Serialize};

use crate::{RecordError, bad, is_zero};

/// The field names are short for the same reason as those of a past run.
#[derive(Serialize, Deserialize)]
pub(crate) struct FamilyRecord {
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<PredecessorRecord>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    trigger_on: Option<String>,
    #[serde(rename = "f", default, skip_serializing_if = "std::ops::Not::not")]
    has_followers: bool,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    parent: Option<PredecessorRecord>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    children: Option<String>,
    #[serde(rename = "cf", default, skip_serializing_if = "is_zero")]
    children_failed: u32,
    #[serde(rename = "fc", default, skip_serializing_if = "std::ops::Not::not")]
    fail_on_child: bool,
    #[serde(rename = "d", default, skip_serializing_if = "is_zero")]
    depth: u32,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    from_run: Option<FromRunRecord>,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    staged: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct FromRunRecord {
    #[serde(flatten)]
    task: PredecessorRecord,
    #[serde(rename = "k")]
    token: i64,
}

#[derive(Serialize, Deserialize)]
struct PredecessorRecord {
    #[serde(rename = "j")]
    job: String,
    #[serde(rename = "i")]
    id: String,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    end: Option<String>,
}

impl FamilyRecord {
    pub(crate) fn of(family: &Family) -> Self {
        let rule = family.trigger_on;
        Self {
            after: family.after.iter().map(PredecessorRecord::of).collect(),
            trigger_on: (rule != TriggerOn::default()).then(|| rule.name().to_owned()),
            has_followers: family.has_followers,
            parent: family.parent.as_ref().map(PredecessorRecord::of),
            children: (family.children != Children::None)
                .then(|| family.children.name().to_owned()),
            children_failed: family.children_failed,
            fail_on_child: family.fail_on_child,
            depth: family.depth,
            from_run: family.from_run.as_ref().map(FromRunRecord::of),
            staged: family.staged.map(|token| token.to_stored()),
        }
    }

    pub(crate) fn family(self) -> Result<Family, RecordError> {
        let rule = self.trigger_on.map(|name| {
            TriggerOn::from_name(&name).ok_or_else(|| bad(format!("unknown rule '{name}'")))
        });
        let children = self.children.map(|name| {
            Children::from_name(&name).ok_or_else(|| bad(format!("unknown children '{name}'")))
        });
        let after = self.after.into_iter().map(PredecessorRecord::predecessor);
        Ok(Family {
            after: after.collect::<Result<_, _>>()?,
            trigger_on: rule.transpose()?.unwrap_or_default(),
            has_followers: self.has_followers,
            parent: self
                .parent
                .map(PredecessorRecord::predecessor)
                .transpose()?,
            children: children.transpose()?.unwrap_or_default(),
            children_failed: self.children_failed,
            fail_on_child: self.fail_on_child,
            depth: self.depth,
            from_run: self.from_run.map(FromRunRecord::run).transpose()?,
            staged: self.staged.map(token).transpose()?,
            open_children: None,
        })
    }
}

fn token(bits: i64) -> Result<Token, RecordError> {
    Token::from_stored(bits).ok_or_else(|| bad(format!("no token: {bits}")))
}

impl FromRunRecord {
    fn of(run: &FromRun) -> Self {
        Self {
            task: PredecessorRecord::of(&Predecessor {
                task: run.task.clone(),
                end: run.end,
            }),
            token: run.token.to_stored(),
        }
    }

    fn run(self) -> Result<FromRun, RecordError> {
        let Predecessor { task, end } = self.task.predecessor()?;
        Ok(FromRun {
            task,
            token: token(self.token)?,
            end,
        })
    }
}

impl PredecessorRecord {
    fn of(predecessor: &Predecessor) -> Self {
        Self {
            job: predecessor.task.job.to_string(),
            id: predecessor.task.id.to_string(),
            end: predecessor.end.map(|end| end.name().to_owned()),
        }
    }

    fn predecessor(self) -> Result<Predecessor, RecordError> {
        let end = self.end.map(|name| {
            TaskEnd::from_name(&name).ok_or_else(|| bad(format!("unknown end '{name}'")))
        });
        Ok(Predecessor {
            task: TaskAddress {
                job: JobName::parse(&self.job).map_err(bad)?,
                id: TaskId::parse(&self.id).map_err(bad)?,
            },
            end: end.transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_099_a_family_is_read_as_it_was_written() {
        let task = |number| TaskAddress {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([number; 16]),
        };
        let ended = |end| Predecessor {
            task: task(2),
            end: Some(end),
        };
        for (number, children) in Children::ALL.into_iter().enumerate() {
            let trigger_on = TriggerOn::ALL[number.min(2)];
            let ends = TaskEnd::ALL.into_iter().map(ended);
            let family = Family {
                after: ends.chain([Predecessor::open(task(1))]).collect(),
                trigger_on,
                has_followers: trigger_on == TriggerOn::Always,
                parent: (number > 0).then(|| ended(TaskEnd::Succeeded)),
                children,
                children_failed: 7 * (number as u32),
                fail_on_child: number == 1,
                depth: number as u32,
                from_run: (number > 1).then(|| FromRun {
                    task: task(3),
                    token: Token::from_random(u64::MAX - 9),
                    end: (number == 3).then_some(TaskEnd::Discarded),
                }),
                staged: (number > 1).then(|| Token::from_random(5)),
                open_children: None,
            };
            let json = serde_json::to_string(&FamilyRecord::of(&family)).unwrap();
            let record: FamilyRecord = serde_json::from_str(&json).unwrap();
            assert_eq!(record.family().unwrap(), family);
        }
        let empty = serde_json::to_string(&FamilyRecord::of(&Family::default())).unwrap();
        assert_eq!(empty, "{}");
    }
}
