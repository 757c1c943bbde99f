//! `dueline doctor` against real engines. Each test causes one defect, which the doctor must name with its fix.
#![cfg(feature = "aws")]

mod deployment;
mod file;
mod processes;
mod proxy;
mod queues;
mod setup;
mod table;
