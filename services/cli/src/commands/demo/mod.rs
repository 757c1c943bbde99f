//! `dueline demo`: plans a task for each file, receives the deliveries, and verifies every result.

mod flow;
mod folder;
mod jobs;
mod plan;
mod progress;
mod receiver;
mod report;
mod run;
mod summary;
mod verify;
mod walk;

pub use flow::FlowResult;
pub use jobs::{DemoKind, jobs};
pub use plan::{DemoTask, ExpectedResult, FileFacts, plan};
pub use receiver::{Deliveries, DeliveryReceiver, TaskDeliveries};
pub use run::Demo;
pub use summary::DemoSummary;
pub use verify::{DemoOutcome, Mismatch, Verification, verify};
pub use walk::{DemoFile, FoundFiles, walk};
