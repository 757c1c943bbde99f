#![doc = include_str!("../README.md")]

mod causes;
mod guard;

use std::{sync::Arc, time::Duration};

use reqwest::Client;
pub use reqwest::Url;

pub use causes::{causes, is_unanswered};
pub use guard::{TargetNotAllowed, check_url};

/// A client for URLs that jobs name. Its calls reach private addresses only if `allow_private` is set. Without
/// `keeps_connections` each call uses a fresh connection.
pub fn client(
    allow_private: bool,
    connect_timeout: Duration,
    keeps_connections: bool,
) -> Result<Client, reqwest::Error> {
    // Fails if another part of the process has installed a provider before; any provider will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .user_agent(concat!("dueline/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(Arc::new(guard::GuardedResolver { allow_private }))
        .connect_timeout(connect_timeout)
        .pool_max_idle_per_host(if keeps_connections { usize::MAX } else { 0 })
        .build()
}
