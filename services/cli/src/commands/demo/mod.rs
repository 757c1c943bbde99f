//! `dueline demo`: what is done to each file, who takes the deliveries, and whether everything came out right.

mod folder;
mod jobs;
mod plan;
mod receiver;
mod report;
mod run;
mod summary;
mod verify;
mod walk;
mod watch;

pub use jobs::{Kind, jobs};
pub use plan::{DemoTask, Expected, Facts, plan};
pub use receiver::{Calls, Deliveries, Receiver};
pub use run::Demo;
pub use summary::Summary;
pub use verify::{DemoOutcome, Mismatch, Verified, verify};
pub use walk::{DemoFile, Found, walk};
