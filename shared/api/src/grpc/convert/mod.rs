//! Values of the domain as messages and back, one file per topic.
//!
//! Into a message is always possible. Out of a message everything is checked, because the other side may be older,
//! newer, or no friend: the error names the field. Sizes are bounded where a message is a request.

mod assignment;
pub(super) mod bounds;
mod enums;
mod error;
mod frontend;
mod job;
mod new_task;
mod queue;
mod report;
mod task;

pub(super) use error::bad_answer;
pub use error::error_in_status;
pub(super) use job::{check_job, job_or};
pub(super) use new_task::check_new_task;
pub(super) use queue::queue_error;
