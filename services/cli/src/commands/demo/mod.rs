//! The parts of `dueline demo` that need no server: what is done to each file, who takes the deliveries, and whether
//! everything came out right.

mod jobs;
mod plan;
mod receiver;
mod summary;
mod verify;
mod walk;

pub use jobs::{Kind, jobs};
pub use plan::{DemoTask, Expected, Facts, plan};
pub use receiver::{Calls, Deliveries, Receiver};
pub use summary::Summary;
pub use verify::{DemoOutcome, Mismatch, Verified, verify};
pub use walk::{DemoFile, Found, walk};
