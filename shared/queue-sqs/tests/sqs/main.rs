//! The queue over the wire: on an engine of the SQS API, and on a stub for responses that engines never give.

mod admin;
mod conformance;
mod costs;
mod failures;
mod lifetime;
mod name_conflicts;
mod packing;
mod priorities;
mod quarantine;
mod stub;
mod support;
