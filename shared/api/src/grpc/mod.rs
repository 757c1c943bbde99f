//! The protocol `dueline.v1` over gRPC: one server and one client adapter for each trait between services.
//!
//! The operations of clients travel alike, through [`rpc`].
//!
//! A server adapter makes a trait object reachable ([`routes`]); a client adapter ([`Remote`]) is a trait object that
//! reaches it. Both behave alike; only the time of a call differs.

mod client;
pub(crate) mod convert;
mod message;
mod rpc;
mod server;

pub use client::{
    ControllerClient, FrontendClient, QueueClient, Remote, RemoteOptions, StatusControllerClient,
};
pub use convert::error_in_status;
pub use message::MESSAGE_BYTES_MAX;
pub use server::{
    ControllerServer, FrontendServer, QueueServer, Services, StatusControllerServer,
    error_response, is_grpc, routes,
};

pub(crate) use client::{answers, missing, send_in_chunks, value, values};
pub(crate) use rpc::{RequestDefaults, Rpc, Unary};
pub(crate) use server::each;

pub mod proto {
    //! Messages, clients and servers as generated from `proto/dueline/v1`.
    #![allow(missing_docs, unreachable_pub, clippy::all)]
    #![allow(rustdoc::invalid_html_tags, rustdoc::bare_urls)]
    tonic::include_proto!("dueline.v1");

    /// The protocol itself, for the reflection service.
    pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("dueline.v1");
}
