//! The executor against a scripted controller.

mod claims_start;
mod exec;
mod fake;
mod http;
mod leases;
mod reports;
mod rig;
mod runs;
mod shutdown;
mod slots;
