//! Ports for engines.

use std::net::{Ipv4Addr, TcpListener};

/// Below the ports that systems use for outgoing connections, so that a restarting engine finds its port still free.
const PORTS: std::ops::Range<u16> = 17_000..32_000;
/// Attempts to find a free port.
const ATTEMPTS_MAX: usize = 1_000;

/// A listener on a random free port of loopback.
pub(crate) fn listener() -> TcpListener {
    (0..ATTEMPTS_MAX)
        .find_map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS))).ok())
        .expect("a free port on loopback")
}

/// A port that is free now. Another process may take it before it is used; the caller then retries with another port.
pub(crate) fn free() -> u16 {
    listener()
        .local_addr()
        .expect("a listener has an address")
        .port()
}
