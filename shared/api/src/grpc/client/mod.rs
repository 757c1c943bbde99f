//! Clients: trait objects whose service is on the other side of a connection.
//!
//! They never retry. The caller knows whether a call may be repeated, and by which write id; the
//! kind of the error says whether the lost call may have taken effect.

mod batch;
mod errors;
mod frontend;
mod queue;
mod remote;
mod shared_calls;
mod status;
mod work;

pub(crate) use self::batch::{answers, missing, send_in_chunks, value, values};
pub use self::{
    frontend::FrontendClient,
    queue::QueueClient,
    remote::{Remote, RemoteOptions},
    status::StatusControllerClient,
    work::ControllerClient,
};
