//! Values of the domain as messages and back, one file per topic.
//!
//! A value always becomes a message. A message may be refused: the other side may be older, newer or hostile. Only the
//! single values are parsed here; the rules for whole requests are in [`crate::check`].

mod assignment;
pub(crate) mod enums;
mod error;
mod family;
pub(crate) mod field;
mod frontend;
mod job;
mod new_task;
mod queue;
mod report;
mod schedule;
mod task;

pub(super) use error::bad_answer;
pub use error::error_in_status;
pub(crate) use job::job_or;
pub(crate) use new_task::{modification, new_task};
pub(super) use queue::queue_error;
pub(crate) use schedule::schedule_spec;
