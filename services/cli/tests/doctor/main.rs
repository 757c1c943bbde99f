//! `dueline doctor` against real engines with one defect after another put in: each is found, named, and has its mend.
#![cfg(feature = "aws")]

mod file;
mod middle;
mod queues;
mod setup;
mod site;
mod table;
mod wire;
