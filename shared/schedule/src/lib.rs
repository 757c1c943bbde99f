#![doc = include_str!("../README.md")]

mod catch_up;
mod change;
mod cron;
mod error;
mod firing;
mod interval;
mod rule;
mod turn;
mod zone;

pub use catch_up::{DueFirings, SkippedFirings};
pub use change::{Change, ChangeError};
pub use error::{RuleError, RuleFault, RuleField};
pub use firing::ScheduleKey;
pub use rule::{Firings, Rule};
pub use turn::{FiringStatus, Turn};
