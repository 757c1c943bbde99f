//! Keeps jobs from calling into the network that the executor lives in.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use ipnet::{Ipv4Net, Ipv6Net};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// IPv4 networks that are not, or not only, on the public Internet.
const CLOSED_V4: [Ipv4Net; 15] = {
    const fn net(a: u8, b: u8, c: u8, bits: u8) -> Ipv4Net {
        Ipv4Net::new_assert(std::net::Ipv4Addr::new(a, b, c, 0), bits)
    }
    [
        net(0, 0, 0, 8),       // this host
        net(10, 0, 0, 8),      // private
        net(100, 64, 0, 10),   // shared by carriers
        net(127, 0, 0, 8),     // loopback
        net(169, 254, 0, 16),  // link-local, cloud metadata
        net(172, 16, 0, 12),   // private
        net(192, 0, 0, 24),    // protocol assignments
        net(192, 0, 2, 24),    // documentation
        net(192, 88, 99, 24),  // 6to4 relays
        net(192, 168, 0, 16),  // private
        net(198, 18, 0, 15),   // benchmarks
        net(198, 51, 100, 24), // documentation
        net(203, 0, 113, 24),  // documentation
        net(224, 0, 0, 4),     // multicast
        net(240, 0, 0, 4),     // reserved, broadcast
    ]
};

/// The part of IPv6 that is handed out for global use. Loopback, link-local and unique-local addresses, multicast,
/// embedded IPv4 (mapped, compatible, NAT64) and all that is reserved lie outside.
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 3);

/// Parts of it that are no hosts of the public Internet all the same.
const CLOSED_V6: [Ipv6Net; 4] = [
    v6(0x2001, 0, 23),     // Teredo and other protocol assignments
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x2002, 0, 16),     // 6to4: IPv4 in disguise
    v6(0x3fff, 0, 20),     // documentation
];

const fn v6(a: u16, b: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), bits)
}

/// Whether anybody on the Internet could call this address as well.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !CLOSED_V4.iter().any(|net| net.contains(&v4)),
        IpAddr::V6(v6) => GLOBAL_V6.contains(&v6) && !CLOSED_V6.iter().any(|net| net.contains(&v6)),
    }
}

/// A target that jobs may not call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotAllowed(pub(super) String);

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "target_not_allowed: {}", self.0)
    }
}

impl std::error::Error for NotAllowed {}

impl NotAllowed {
    /// Finds the refusal among the causes of an error.
    pub(super) fn within(error: &reqwest::Error) -> Option<&Self> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(refusal) = error.downcast_ref() {
                return Some(refusal);
            }
            cause = error.source();
        }
        None
    }
}

/// Checks what can be told from the URL alone; names are checked when they are resolved. Schemes and user names are
/// looked at where the settings are read.
pub(super) fn check_url(url: &Url, allow_private: bool) -> Result<(), NotAllowed> {
    let Some(host) = url.host_str() else {
        return Err(NotAllowed("the URL names no host".into()));
    };
    // The parser has brought every way of writing an address into its one normal form.
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(address) if !allow_private && !is_public(address) => Err(refused(address)),
        _ => Ok(()),
    }
}

fn refused(address: impl fmt::Display) -> NotAllowed {
    NotAllowed(format!("{address} is not a public address"))
}

/// Resolves names, and refuses those with an address that is not public. The connection is made to the very
/// addresses that were checked, so a name that changes in between gains nothing.
pub(super) struct GuardedResolver {
    pub(super) allow_private: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = found.collect();
            let closed = addresses.iter().find(|address| !is_public(address.ip()));
            if let Some(address) = closed.filter(|_| !allow_private) {
                let NotAllowed(why) = refused(address.ip());
                return Err(NotAllowed(format!("'{}': {why}", name.as_str())).into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<(), NotAllowed> {
        check_url(&Url::parse(url).unwrap(), false)
    }

    #[test]
    fn private_targets_are_refused_however_they_are_spelled() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://0/",
            "http://10.0.0.1/",
            "http://172.31.255.255/",
            "http://192.168.1.1:8080/",
            "http://100.64.0.1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://192.0.2.1/",
            "http://198.18.0.1/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[::]/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[64:ff9b:1::1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001::1]/",
            "http://[fc00::1]/",
            "http://[fd12:3456::1]/",
            "http://[fe80::1]/",
            "http://[fec0::1]/",
            "http://[ff02::1]/",
            "http://[2001:db8::1]/",
            "http://[3fff::1]/",
            "http://[100::1]/",
            "http://１２７.0.0.1/",
        ] {
            assert!(check(url).is_err(), "{url} must be refused");
        }
    }

    #[test]
    fn public_targets_are_allowed() {
        for url in [
            "http://93.184.215.14/",
            "https://example.com/",
            "http://[2606:4700::6810:85e5]/",
            "http://172.32.0.1/",
            "http://100.128.0.1/",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn private_targets_are_allowed_to_those_who_may_call_them() {
        let local = Url::parse("http://127.0.0.1/").unwrap();
        assert_eq!(check_url(&local, true), Ok(()));
        let nowhere = Url::parse("data:x").unwrap();
        assert!(check_url(&nowhere, true).is_err());
    }

    #[tokio::test]
    async fn a_name_of_this_host_is_refused_when_it_is_resolved() {
        let resolver = |allow_private| GuardedResolver { allow_private };
        let name = || "localhost".parse::<Name>().unwrap();
        let refusal = resolver(false).resolve(name()).await.err().unwrap();
        assert!(refusal.downcast_ref::<NotAllowed>().is_some(), "{refusal}");
        assert!(resolver(true).resolve(name()).await.is_ok());
    }
}
