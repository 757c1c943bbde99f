//! Just enough HTTP to ask an engine whether it is there, and which one it is.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::EngineName;

/// An engine on loopback that takes longer is not there.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// More of an answer than this says nothing new.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// `host:port` of an `http` address; `None` for anything else.
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

/// Which engine answers at `url`: it is asked for a page and known by what it says about itself.
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

/// The whole answer to a `GET`, head and body.
async fn get(url: &str, path: &str) -> io::Result<String> {
    let to = authority(url)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no http address"))?;
    let ask = async {
        let mut stream = TcpStream::connect(&to).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut answer)
            .await?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&answer).replace("\r\n", "\n"))
    };
    match tokio::time::timeout(ANSWER_MAX, ask).await {
        Ok(answer) => answer,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn only_plain_http_has_an_authority_to_ask() {
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
