//! The protocol, over real connections: what is said on one side arrives on the other.

mod controller;
mod errors;
mod fakes;
mod frontend;
mod health;
mod lost;
mod queue;
mod server;
mod status;
mod stream;
mod values;
mod work;
