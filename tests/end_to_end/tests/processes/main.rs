//! Real processes on real files, one fault at a time.

mod consumer;
mod durable;
mod fair_share;
mod families;
mod kept;
mod owners;
mod python;
mod recovery;
mod recurring;
mod refusals;
mod registered;
mod restart;
mod roles;
mod schedule;
mod shutdown;
mod sinks;
mod sites;
mod traces;
mod watch;
mod zombie;

use std::time::Duration;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
