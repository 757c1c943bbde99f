//! Tasks that wait for other tasks.

use std::collections::HashMap;

use dueline_domain::{EdgeKind, Family, NewTask, Predecessor, TaskAddress, TriggerOn, limits};

use crate::{ApiError, ErrorKind, ErrorReason};

/// Checks what a task waits for, and removes repetitions and what only a server may say. `None`: the task has no family.
pub(super) fn family(
    task: &TaskAddress,
    mut family: Box<Family>,
) -> Result<Option<Box<Family>>, ApiError> {
    let max = limits().after_max;
    if family.after.len() > max {
        let message = format!(
            "has {} entries; at most {max} are allowed",
            family.after.len()
        );
        return Err(ApiError::invalid("after", ErrorReason::TooMany, message));
    }
    if family.after.iter().any(|one| one.task == *task) {
        let message = "a task cannot wait for itself";
        return Err(ApiError::invalid("after", ErrorReason::Cycle, message));
    }
    if let Some(run) = &mut family.from_run {
        run.end = None;
        if run.task == *task {
            let message = "a task cannot be submitted by its own run";
            return Err(ApiError::invalid("from_run", ErrorReason::Cycle, message));
        }
    }
    if let Some(parent) = &mut family.parent {
        parent.end = None;
        let message = match () {
            () if parent.task == *task => "a task cannot be its own parent",
            () if family.after.iter().any(|one| one.task == parent.task) => {
                "those that wait for a task wait for its children, too, so a child cannot wait for its parent"
            }
            () => "",
        };
        if !message.is_empty() {
            return Err(ApiError::invalid("parent", ErrorReason::Cycle, message));
        }
    }
    let mut seen: Vec<TaskAddress> = Vec::with_capacity(family.after.len());
    family.after.retain_mut(|one| {
        one.end = None;
        let is_new = !seen.contains(&one.task);
        seen.push(one.task.clone());
        is_new
    });
    let after = std::mem::take(&mut family.after);
    *family = Family {
        parent: family.parent.take(),
        after,
        trigger_on: family.trigger_on,
        fail_on_child: family.fail_on_child,
        from_run: family.from_run.take(),
        ..Family::default()
    };
    let asks = *family != Family::default();
    if family.trigger_on != TriggerOn::default() && family.after.is_empty() {
        let message = "says which ends of the tasks in `after` count, and there are none";
        return Err(ApiError::invalid(
            "trigger_on",
            ErrorReason::NoPredecessor,
            message,
        ));
    }
    Ok(asks.then_some(family))
}

/// How the tasks of one submit wait for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOrder {
    /// For each task, how many tasks of the submit wait for each other in a row up to it: none before the first. A task
    /// that cannot be stored has an error instead.
    pub depths: Vec<Result<usize, ApiError>>,
    /// For each task and each of its predecessors, the number of that one if it is in the submit.
    pub after: Vec<Vec<Option<usize>>>,
    /// For each task, the number of its parent if that is in the submit.
    pub parent: Vec<Option<usize>>,
}

/// The order in which the tasks of a submit have to be stored: each after those that it waits for, whatever their order
/// in the submit.
pub fn batch_order(tasks: &[NewTask]) -> BatchOrder {
    let mut numbers = HashMap::new();
    for (number, task) in tasks.iter().enumerate() {
        // A client cannot name a task by an id that is made for it.
        numbers.entry((&task.job, &task.id)).or_insert(number);
    }
    let number = |one: &Predecessor| numbers.get(&(&one.task.job, &one.task.id)).copied();
    let after: Vec<Vec<Option<usize>>> = tasks
        .iter()
        .map(|task| {
            let after = task.family().map_or(&[][..], |family| &family.after);
            after.iter().map(number).collect()
        })
        .collect();
    let parent_of = |task: &NewTask| number(task.family()?.parent.as_ref()?);
    let parent: Vec<_> = tasks.iter().map(parent_of).collect();
    let before = |task: usize| after[task].iter().flatten().chain(&parent[task]);
    let mut followers = vec![Vec::new(); tasks.len()];
    let mut open: Vec<usize> = (0..tasks.len()).map(|task| before(task).count()).collect();
    for task in 0..tasks.len() {
        for before in before(task) {
            followers[*before].push(task);
        }
    }
    let mut depths: Vec<Option<usize>> =
        open.iter().map(|open| (*open == 0).then_some(0)).collect();
    let is_first = |number: &usize| open[*number] == 0;
    let mut ready: Vec<usize> = (0..tasks.len()).filter(is_first).collect();
    while let Some(number) = ready.pop() {
        for follower in &followers[number] {
            open[*follower] -= 1;
            if open[*follower] == 0 {
                let before = before(*follower).filter_map(|before| depths[*before]);
                depths[*follower] = before.max().map(|depth| depth + 1);
                ready.push(*follower);
            }
        }
    }
    let max = limits().batch_depth_max;
    let depth = |depth: Option<usize>| match depth {
        Some(depth) if depth < max => Ok(depth),
        Some(_) => {
            let message =
                format!("more than {max} tasks of one submit wait for each other in a row");
            Err(ApiError::invalid("after", ErrorReason::TooDeep, message))
        }
        None => {
            let message = "the task waits for itself by way of other tasks of the submit";
            Err(ApiError::invalid("after", ErrorReason::Cycle, message))
        }
    };
    BatchOrder {
        depths: depths.into_iter().map(depth).collect(),
        after,
        parent,
    }
}

/// The field that names what a task waits for.
const fn field(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Follower => "after",
        EdgeKind::Child => "parent",
        EdgeKind::Staged => "from_run",
    }
}

/// What the task waits for does not exist.
pub fn unknown_predecessor(kind: EdgeKind, task: &TaskAddress) -> ApiError {
    let field = field(kind);
    let message = format!("{field}: task {task} does not exist");
    let reason = match kind {
        EdgeKind::Follower | EdgeKind::Staged => ErrorReason::UnknownPredecessor,
        EdgeKind::Child => ErrorReason::UnknownParent,
    };
    ApiError::new(ErrorKind::NotFound, reason, message).with_field(field)
}

/// What the task waits for has ended in a way that never lets the task go on.
pub fn predecessor_ended(kind: EdgeKind, why: &str) -> ApiError {
    let field = field(kind);
    let message = format!("{field}: {why}, so that the task would never run");
    let reason = match kind {
        EdgeKind::Follower | EdgeKind::Staged => ErrorReason::PredecessorEnded,
        EdgeKind::Child => ErrorReason::ParentEnded,
    };
    ApiError::new(ErrorKind::Conflict, reason, message).with_field(field)
}

/// The task would have more parents above it, or its parent more children, than is allowed.
pub fn family_too_large(reason: ErrorReason, message: String) -> ApiError {
    ApiError::invalid("parent", reason, message)
}

/// What the task waits for is in the same submit, and was refused.
pub fn predecessor_refused(kind: EdgeKind, task: &TaskAddress, error: &ApiError) -> ApiError {
    let field = field(kind);
    let reason = match kind {
        EdgeKind::Follower | EdgeKind::Staged => ErrorReason::PredecessorRefused,
        EdgeKind::Child => ErrorReason::ParentRefused,
    };
    let message = format!("{field}: task {task} of this submit was refused: {error}");
    let refused = match error.kind() {
        kind if kind.is_retryable() => ApiError::new(kind, reason, message),
        _ => ApiError::new(ErrorKind::Conflict, reason, message),
    };
    let refused = refused.with_field(field);
    match error.retry_after() {
        Some(after) => refused.with_retry_after(after),
        None => refused,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dueline_domain::{JobName, TaskId, TaskOptions};

    use super::*;

    fn task(number: u8, after: &[u8]) -> NewTask {
        let job = JobName::parse("mail").unwrap();
        let address = |number: &u8| TaskAddress {
            job: job.clone(),
            id: TaskId::from_bytes([*number; 16]),
        };
        let family = Family {
            after: after.iter().map(address).map(Predecessor::open).collect(),
            ..Family::default()
        };
        let mut task = NewTask::now(address(&number).id, job.clone(), Bytes::new());
        task.options = Some(Box::new(TaskOptions {
            family: Some(Box::new(family)),
            ..TaskOptions::default()
        }));
        task
    }

    fn depths(tasks: &[NewTask]) -> Vec<Result<usize, String>> {
        let reason = |error: ApiError| error.reason().to_string();
        let depths = batch_order(tasks).depths.into_iter();
        depths.map(|depth| depth.map_err(reason)).collect()
    }

    #[test]
    fn f_098_tasks_of_a_submit_are_ordered_by_what_they_wait_for() {
        let tasks = [
            task(3, &[2, 1]),
            task(1, &[]),
            task(2, &[1]),
            task(4, &[99]),
        ];
        assert_eq!(depths(&tasks), [Ok(2), Ok(0), Ok(1), Ok(0)]);
        assert_eq!(
            batch_order(&tasks).after,
            [vec![Some(2), Some(1)], vec![], vec![Some(1)], vec![None]]
        );
    }

    #[test]
    fn f_098_a_cycle_is_refused_with_all_that_wait_for_it() {
        let tasks = [
            task(1, &[3]),
            task(2, &[1]),
            task(3, &[2]),
            task(4, &[3]),
            task(5, &[]),
        ];
        let cycle = || Err("cycle".to_owned());
        assert_eq!(depths(&tasks), [cycle(), cycle(), cycle(), cycle(), Ok(0)]);
    }

    #[test]
    fn a_submit_has_a_greatest_depth() {
        let tasks: Vec<_> = (0..=102_u8)
            .map(|n| task(n, &[n.wrapping_sub(1)]))
            .collect();
        let found = depths(&tasks);
        assert_eq!(found[100], Ok(100));
        assert_eq!(found[101], Err("too_deep".to_owned()));
    }
}
