#![doc = include_str!("../README.md")]

mod catch_up;
mod cron;
mod error;
mod firing;
mod interval;
mod overlap;
mod rule;
mod zone;

pub use catch_up::{CatchUp, CatchUpError, CatchUpPolicy, DueFirings, SkippedFirings};
pub use error::{RuleError, RuleFault, RuleField};
pub use firing::ScheduleKey;
pub use overlap::{Overlap, OverlapDecision, UnfinishedFirings};
pub use rule::{Firings, Rule, RuleSpec};
