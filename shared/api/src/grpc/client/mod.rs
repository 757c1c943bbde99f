//! Clients: trait objects whose service is on the other side of a connection.
//!
//! They never try again by themselves. Whoever calls knows whether a call may be repeated, and by which write id; the
//! kind of the error tells whether the lost one may have taken effect.

mod batch;
mod errors;
mod frontend;
mod queue;
mod remote;
mod status;
mod told;
mod work;

pub use self::{
    frontend::FrontendClient,
    queue::QueueClient,
    remote::{Remote, RemoteOptions},
    status::StatusClient,
    work::WorkClient,
};
