//! Ports for engines.

use std::net::{Ipv4Addr, TcpListener};

/// Below the ports that systems give to outgoing connections: an engine that restarts finds its port still free.
const PORTS: std::ops::Range<u16> = 17_000..32_000;
/// Looks for a free one; all in use would take a machine full of engines.
const TRIES_MAX: usize = 1_000;

/// A listener on a random free port of loopback.
pub(crate) fn listener() -> TcpListener {
    (0..TRIES_MAX)
        .find_map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS))).ok())
        .expect("a free port on loopback")
}

/// A port that is free now. Somebody else may take it before it is used: start again with another one then.
pub(crate) fn free() -> u16 {
    listener()
        .local_addr()
        .expect("a listener has an address")
        .port()
}
