//! Restricts calls to public addresses, so that jobs cannot reach the network of the process that makes their calls.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use ipnet::{Ipv4Net, Ipv6Net};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// IPv4 networks that are not on the public Internet, or not only there.
const PRIVATE_V4: [Ipv4Net; 15] = {
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

/// The part of IPv6 that is assigned for global use. Loopback, link-local and unique-local addresses, multicast,
/// embedded IPv4 (mapped, compatible, NAT64) and reserved ranges are outside it.
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 3);

/// Networks within [`GLOBAL_V6`] that are not on the public Internet.
const PRIVATE_V6: [Ipv6Net; 4] = [
    v6(0x2001, 0, 23),     // Teredo and other protocol assignments
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x2002, 0, 16),     // 6to4: embeds IPv4 addresses
    v6(0x3fff, 0, 20),     // documentation
];

const fn v6(a: u16, b: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), bits)
}

/// Whether this address is reachable from the public Internet, too.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !PRIVATE_V4.iter().any(|net| net.contains(&v4)),
        IpAddr::V6(v6) => {
            GLOBAL_V6.contains(&v6) && !PRIVATE_V6.iter().any(|net| net.contains(&v6))
        }
    }
}

/// The error of a call to a target that jobs may not call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetNotAllowed(pub(crate) String);

impl fmt::Display for TargetNotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "target_not_allowed: {}", self.0)
    }
}

impl std::error::Error for TargetNotAllowed {}

impl TargetNotAllowed {
    /// Finds this error among the causes of another.
    pub fn within(error: &reqwest::Error) -> Option<&Self> {
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

/// Checks a URL whose host is an address. Host names are checked when they are resolved. Schemes and user names are
/// checked when the settings are parsed.
pub fn check_url(url: &Url, allow_private: bool) -> Result<(), TargetNotAllowed> {
    let Some(host) = url.host_str() else {
        return Err(TargetNotAllowed("the URL has no host".into()));
    };
    // The parser has normalised every spelling of an address.
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(address) if !allow_private && !is_public(address) => Err(refused(address)),
        _ => Ok(()),
    }
}

fn refused(address: impl fmt::Display) -> TargetNotAllowed {
    TargetNotAllowed(format!("{address} is not a public address"))
}

/// Resolves names and refuses those with an address that is not public. The client connects to the addresses returned
/// here, so a name that resolves differently later does not bypass the check.
pub(crate) struct GuardedResolver {
    pub(crate) allow_private: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let resolved = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = resolved.collect();
            let private = addresses.iter().find(|address| !is_public(address.ip()));
            if let Some(address) = private.filter(|_| !allow_private) {
                let TargetNotAllowed(why) = refused(address.ip());
                return Err(TargetNotAllowed(format!("'{}': {why}", name.as_str())).into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<(), TargetNotAllowed> {
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
    fn private_targets_are_allowed_by_the_setting() {
        let local = Url::parse("http://127.0.0.1/").unwrap();
        assert_eq!(check_url(&local, true), Ok(()));
        let without_host = Url::parse("data:x").unwrap();
        assert!(check_url(&without_host, true).is_err());
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_a_private_address_is_refused() {
        let resolver = |allow_private| GuardedResolver { allow_private };
        let name = || "localhost".parse::<Name>().unwrap();
        let refusal = resolver(false).resolve(name()).await.err().unwrap();
        assert!(refusal.is::<TargetNotAllowed>(), "{refusal}");
        assert!(resolver(true).resolve(name()).await.is_ok());
    }
}
