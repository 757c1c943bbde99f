//! The queue over the wire: on an engine of the SQS API, and on a stub that answers what engines never do.

mod admin;
mod conformance;
mod costs;
mod failures;
mod lifetime;
mod neighbours;
mod packing;
mod strays;
mod stub;
mod support;
