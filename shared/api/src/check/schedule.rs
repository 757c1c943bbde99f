//! Schedules.

use dueline_domain::{
    Due, JobName, NewTask, Schedule, ScheduleSpec, TaskId, TaskTemplate, Timestamp,
};

use super::{field::short_text, new_task, presentable};
use crate::{ApiError, ErrorReason};

/// Checks the settings of a schedule, and brings its template into the form that is stored. The service checks the rule,
/// because that takes the database of time zones.
pub fn schedule(job: &JobName, spec: &mut ScheduleSpec) -> Result<(), ApiError> {
    // Destructured without `..`, so that a new field does not compile before it is checked or listed here.
    let ScheduleSpec {
        info,
        rule: _,
        jitter,
        // Its type accepts no other values.
        catch_up: _,
        overlap: _,
        firings_max,
        template,
    } = spec;
    let info = Some(&**info).filter(|info| !info.is_empty());
    short_text("info", info)?;
    presentable("info", info.unwrap_or_default())?;
    if *jitter > Schedule::JITTER_MAX {
        let message = format!("must be at most {} s", Schedule::JITTER_MAX.as_secs());
        return Err(ApiError::invalid(
            "jitter_ms",
            ErrorReason::OutOfRange,
            message,
        ));
    }
    if *firings_max == Some(0) {
        let message = "must be at least 1";
        return Err(ApiError::invalid(
            "firings_max",
            ErrorReason::OutOfRange,
            message,
        ));
    }
    let task = template.clone();
    let mut task = firing_task(job, task, TaskId::from_bytes([0; 16]), Timestamp::EPOCH);
    check_template(&mut task).map_err(|error| error.within("task"))?;
    template.options = task.options;
    Ok(())
}

fn check_template(task: &mut NewTask) -> Result<(), ApiError> {
    let (len, max) = (task.payload.len(), TaskTemplate::PAYLOAD_BYTES_MAX);
    if len > max {
        let message = format!("has {len} bytes; at most {max} are allowed in a schedule");
        return Err(ApiError::invalid("payload", ErrorReason::TooLong, message));
    }
    let options = task.options.as_ref();
    if options.is_some_and(|options| options.key.is_some()) {
        let message = "the tasks of a schedule cannot share a key";
        return Err(ApiError::invalid(
            "key",
            ErrorReason::NotApplicable,
            message,
        ));
    }
    new_task(task)
}

/// The task of a firing, not checked yet.
pub fn firing_task(
    job: &JobName,
    template: TaskTemplate,
    id: TaskId,
    due_at: Timestamp,
) -> NewTask {
    NewTask {
        id,
        id_is_given: true,
        job: job.clone(),
        due: Due::At(due_at),
        priority: template.priority,
        weight: template.weight,
        payload: template.payload,
        options: template.options,
    }
}
