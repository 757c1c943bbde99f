//! The rules for what callers send, the same for REST, gRPC and the embedded API.
//!
//! [`field`] parses single values; the transports use it. The other modules check whole requests; the services that
//! carry the requests out use them, so no transport can leave a rule out. Errors name a field by its name in REST.

mod family;
pub(crate) mod field;
mod job;
mod json;
mod list;
mod process;
mod report;
mod schedule;
mod task;
mod unique;

pub use family::{
    BatchOrder, batch_order, family_too_large, predecessor_ended, predecessor_refused,
    unknown_predecessor,
};
#[cfg(feature = "grpc")]
pub(crate) use job::HANDLER_CONFIG_BYTES_MAX;
pub(crate) use job::policy;
pub use job::{handler, job, new_job_name};
pub(crate) use json::{is_presentable, presentable};
pub use list::{PAGE_LEN_DEFAULT, PAGE_LEN_MAX, list_query, page};
pub(crate) use list::{page_limit, waited_jobs};
pub use process::{metadata, process_kind};
pub use report::owner;
pub(crate) use report::{action, extension, lifetime, trash_reason};
pub use schedule::{firing_task, schedule};
pub use task::{WAIT_MAX, cancel_reason, modification, new_task, wait};
pub(crate) use task::{batch_len, payload_len};
