#![doc = include_str!("../README.md")]

mod api;
mod aws;
mod fleet;
mod history;
mod member;
mod numbers;
mod site;
mod turns;

pub use api::{Api, Insisted};
pub use aws::Aws;
pub use fleet::{Fleet, Plan};
pub use history::{Tally, Wanted, check_history};
pub use member::{Member, Role};
pub use numbers::{late_ms, millis, number, percentile, text};
pub use site::Site;
pub use turns::{Turn, alone, with_others};
