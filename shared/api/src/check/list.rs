//! Lists of tasks.

use dueline_domain::JobName;
use dueline_ports::{ListOrder, ListQuery};

use super::field::short_text;
use crate::{ApiError, ErrorReason};

/// Tasks on a page of a list whose caller names no limit.
pub const PAGE_LEN_DEFAULT: usize = 100;

/// Most tasks on a page.
pub const PAGE_LEN_MAX: usize = 1_000;

/// Checks which page is asked for.
pub fn page(cursor: Option<&str>, limit: usize) -> Result<(), ApiError> {
    short_text("cursor", cursor)?;
    if limit == 0 || limit > PAGE_LEN_MAX {
        let message = format!("must be 1 to {PAGE_LEN_MAX}");
        return Err(ApiError::invalid("limit", ErrorReason::OutOfRange, message));
    }
    Ok(())
}

/// Checks what a list asks for. A list by due time that names no states is one of all states that have this order.
pub fn list_query(query: &mut ListQuery) -> Result<(), ApiError> {
    // Destructured without `..`, so that a new field does not compile before it is checked or listed here.
    let ListQuery {
        job: _,
        states,
        tag,
        name,
        key,
        due_from: _,
        due_before: _,
        schedule: _,
        order,
        cursor,
        limit,
    } = query;
    if order.is_by_due_time() {
        if states.is_empty() {
            states.extend(ListOrder::WITH_DUE_TIME);
        }
        let other = states
            .iter()
            .find(|state| !ListOrder::WITH_DUE_TIME.contains(state));
        if let Some(state) = other {
            let message = format!(
                "only new and retriable tasks have an order by due time; leave out state {state}, or list by posted"
            );
            return Err(ApiError::invalid("order", ErrorReason::NoDueOrder, message));
        }
    }
    for (field, text) in [
        ("tag", tag),
        ("name", name),
        ("key", key),
        ("cursor", cursor),
    ] {
        short_text(field, text.as_deref())?;
    }
    page_limit(*limit)
}

/// Checks the length of a page.
pub(crate) fn page_limit(limit: usize) -> Result<(), ApiError> {
    if limit == 0 || limit > PAGE_LEN_MAX {
        let message = format!("must be 1 to {PAGE_LEN_MAX}");
        return Err(ApiError::invalid("limit", ErrorReason::OutOfRange, message));
    }
    Ok(())
}

/// Checks the jobs that a caller waits for, and leaves each of them once.
pub(crate) fn waited_jobs(jobs: &mut Vec<JobName>, max: usize) -> Result<(), ApiError> {
    jobs.sort_unstable();
    jobs.dedup();
    if jobs.is_empty() {
        let message = "name at least one job";
        return Err(ApiError::invalid("jobs", ErrorReason::NoJob, message));
    }
    if jobs.len() > max {
        let message = format!("at most {max} are allowed");
        return Err(ApiError::invalid("jobs", ErrorReason::TooMany, message));
    }
    Ok(())
}
