//! A minimal HTTP client that checks whether an engine answers, and identifies it.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::EngineName;

/// Time limit of a request to an engine on loopback.
const RESPONSE_MAX: Duration = Duration::from_secs(5);
/// Most bytes read from a response.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;

/// The `host:port` of an `http` address; `None` for anything else.
pub(crate) fn authority(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    let authority = rest.split(['/', '?']).next()?;
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Some(if has_port {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    })
}

/// Identifies the engine at `url` by the headers and pages that it serves.
pub(crate) async fn identify(url: &str) -> io::Result<EngineName> {
    let root = get(url, "/").await?.to_ascii_lowercase();
    let server = root
        .lines()
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix("server:"))
        .unwrap_or_default()
        .trim();
    Ok(if server.starts_with("dynoxide") {
        EngineName::Dynoxide
    } else if server.starts_with("pekko-http") {
        EngineName::ElasticMq
    } else if server.starts_with("jetty") {
        EngineName::DynamoDbLocal
    } else if get(url, "/_ministack/health").await?.contains(" 200 ") {
        EngineName::Ministack
    } else {
        EngineName::Other
    })
}

/// The complete response to a `GET`, head and body.
async fn get(url: &str, path: &str) -> io::Result<String> {
    let to = authority(url)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not an http address"))?;
    let exchange = async {
        let mut stream = TcpStream::connect(&to).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream
            .take(RESPONSE_BYTES_MAX)
            .read_to_end(&mut response)
            .await?;
        if response.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&response).replace("\r\n", "\n"))
    };
    match tokio::time::timeout(RESPONSE_MAX, exchange).await {
        Ok(response) => response,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn only_plain_http_addresses_have_an_authority() {
        let of = |url| authority(url);
        assert_eq!(of("http://localhost:4566"), Some("localhost:4566".into()));
        assert_eq!(
            of("http://127.0.0.1:4566/some/path?x"),
            Some("127.0.0.1:4566".into())
        );
        assert_eq!(of("http://engine"), Some("engine:80".into()));
        assert_eq!(of("http://[::1]:80"), Some("[::1]:80".into()));
        assert_eq!(of("https://dynamodb.us-east-1.amazonaws.com"), None);
    }
}
