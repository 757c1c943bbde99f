//! The edge of the process: connections, and what holds for every request before REST or gRPC sees it.

mod context;
mod delivery;
mod gate;
mod guard;
mod serve;
mod site;

pub(crate) use guard::Guard;
pub use serve::serve;
