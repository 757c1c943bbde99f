//! Refuses requests that a web page makes its visitor's browser send.
//!
//! A browser lets a page of any site send simple requests to any address, the visitor's loopback interface included. The
//! page cannot read the answer, but the request takes effect. Browsers mark such requests: `Origin` names the page's
//! site, and `Sec-Fetch-Site` says how that site relates to the one that is called. Programs send neither header.

use std::net::IpAddr;

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use dueline_api::{ApiError, ErrorKind, ErrorReason};
use http::{
    HeaderMap, Uri, header,
    uri::{Authority, Scheme},
};

use crate::rest::{Failure, render};

/// `same-origin` comes from a page of this server, `none` from the visitor, who typed the address.
const SITES_ALLOWED: [&str; 2] = ["same-origin", "none"];
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Which requests a listener serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct SitePolicy {
    /// The listener is on the loopback interface: the request must name a loopback host, so that a page whose host name
    /// was pointed at this machine (DNS rebinding) is refused.
    pub(super) loopback: bool,
}

impl SitePolicy {
    /// A middleware for REST and gRPC alike.
    pub(super) async fn middleware(self, request: Request, next: Next) -> Response {
        match self.check(request.headers(), request.uri()) {
            Ok(()) => next.run(request).await,
            Err(error) => {
                let mut response = Failure::from(error).into_response();
                render(&mut response, "-");
                response
            }
        }
    }

    fn check(self, headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
        let denied = |reason, message: &str| Err(ApiError::new(ErrorKind::Denied, reason, message));
        let Some(hosts) = hosts(headers, uri) else {
            return denied(ErrorReason::ForeignHost, "the Host header is not a host");
        };
        if self.loopback && !hosts.iter().all(is_loopback) {
            return denied(
                ErrorReason::ForeignHost,
                "this server listens on the loopback interface and answers only calls to a loopback host",
            );
        }
        let cross_origin = "calls from pages of another site are not allowed";
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().ok().and_then(origin_authority);
            let same = origin.is_some_and(|(scheme, origin)| {
                !hosts.is_empty() && hosts.iter().all(|host| is_same(&scheme, &origin, host))
            });
            if !same {
                return denied(ErrorReason::CrossOrigin, cross_origin);
            }
        }
        for site in headers.get_all(SEC_FETCH_SITE) {
            if !site
                .to_str()
                .is_ok_and(|site| SITES_ALLOWED.contains(&site))
            {
                return denied(ErrorReason::CrossOrigin, cross_origin);
            }
        }
        Ok(())
    }
}

/// Every host that the request names: in its `Host` headers, and in its target (always there in HTTP/2). `None` when one
/// cannot be read. Only HTTP/1.0 may name none, which no browser sends.
fn hosts(headers: &HeaderMap, uri: &Uri) -> Option<Vec<Authority>> {
    let mut hosts = Vec::with_capacity(2);
    for host in headers.get_all(header::HOST) {
        hosts.push(Authority::try_from(host.as_bytes()).ok()?);
    }
    hosts.extend(uri.authority().cloned());
    Some(hosts)
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Scheme and host of an origin. `null`, the origin of a sandboxed page or a file, has neither.
fn origin_authority(origin: &str) -> Option<(Scheme, Authority)> {
    let (scheme, authority) = origin.split_once("://")?;
    Some((scheme.parse().ok()?, authority.parse().ok()?))
}

/// Whether an origin is the host that is called. A proxy in front may speak TLS, so the scheme decides only which port
/// a name without one means.
fn is_same(scheme: &Scheme, origin: &Authority, host: &Authority) -> bool {
    let port = |of: &Authority| match of.port_u16() {
        Some(port) => port,
        None if *scheme == Scheme::HTTPS => 443,
        None => 80,
    };
    origin.host().eq_ignore_ascii_case(host.host()) && port(origin) == port(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(loopback: bool, headers: &[(&'static str, &str)]) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let checked = SitePolicy { loopback }.check(&map, &Uri::from_static("/"));
        checked.map_err(|error| error.reason().to_string())
    }

    #[test]
    fn g_13_a_loopback_listener_answers_only_loopback_hosts() {
        for good in [
            "localhost",
            "LOCALHOST:7070",
            "a.localhost",
            "127.0.0.1:7070",
            "127.9.9.9",
            "[::1]:7070",
        ] {
            assert_eq!(check(true, &[("host", good)]), Ok(()), "{good}");
        }
        for bad in [
            "evil.example:7070",
            "10.0.0.1",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "a b",
        ] {
            let refused = Err("foreign_host".to_owned());
            assert_eq!(check(true, &[("host", bad)]), refused, "{bad}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert!(check(true, &two).is_err());
        assert_eq!(check(false, &[("host", "dueline.example")]), Ok(()));
    }

    #[test]
    fn g_13_only_the_same_host_and_port_is_the_same_origin() {
        let check = |host, origin| check(false, &[("host", host), ("origin", origin)]).is_ok();
        assert!(check("localhost:7070", "http://localhost:7070"));
        assert!(check("Example.org", "https://example.org"));
        assert!(check("example.org:443", "https://example.org"));
        for bad in [
            "http://localhost:8080",
            "http://localhost",
            "http://evil.example",
            "null",
            "http://localhost:7070.evil.example",
            "",
        ] {
            assert!(!check("localhost:7070", bad), "{bad}");
        }
        let no_host = [("origin", "http://localhost:7070")];
        assert!(super::tests::check(false, &no_host).is_err());
    }

    #[test]
    fn g_13_a_browser_that_names_another_site_is_refused_without_an_origin_too() {
        let check = |site| check(true, &[("host", "localhost"), ("sec-fetch-site", site)]).is_ok();
        assert!(check("same-origin") && check("none"));
        for bad in ["cross-site", "same-site", "", "Cross-Site", "other"] {
            assert!(!check(bad), "{bad}");
        }
    }
}
