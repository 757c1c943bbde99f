//! Sinks: where the finished tasks of a job are delivered.

use std::{fmt, sync::Arc};

/// Where the record of each finished task of a job is delivered, as a URI: `file:NAME`, `http://…`, `https://…` or
/// `sqs://QUEUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink(Arc<str>);

/// The kind of a sink, with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkTarget<'a> {
    /// A line is appended to the file of this name, in the folder of the deployment.
    File(&'a str),
    /// A request is made to this URL.
    Http(&'a str),
    /// A message is sent to the queue of this name.
    Sqs(&'a str),
}

/// Why a text is no sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The text is too long.
    #[error("has more than {max} bytes", max = Sink::BYTES_MAX)]
    TooLong,
    /// The scheme is unknown.
    #[error("must begin with file:, http://, https:// or sqs://")]
    Scheme,
    /// The file is not a plain name.
    #[error(
        "must name a plain file: letters, digits, '.', '_' and '-', at most {max} of them, none a '.' at the \
         beginning; the server chooses the folder", max = Sink::FILE_LEN_MAX
    )]
    FileName,
    /// The URL has no host, a user name, or an illegal character.
    #[error(
        "must be a URL with a host and without a user name, a fragment, spaces or control characters"
    )]
    Url,
    /// The queue has no legal name.
    #[error("must name a standard queue: letters, digits, '_' and '-', at most 80 of them")]
    QueueName,
}

impl Sink {
    /// Longest URI.
    pub const BYTES_MAX: usize = 2_048;

    /// Longest name of a file.
    pub const FILE_LEN_MAX: usize = 100;

    /// Longest name of a queue.
    const QUEUE_LEN_MAX: usize = 80;

    /// Checks and builds a sink.
    ///
    /// ```
    /// use dueline_domain::{Sink, SinkError, SinkTarget};
    /// let sink = Sink::parse("file:done.ndjson").unwrap();
    /// assert_eq!(sink.target(), SinkTarget::File("done.ndjson"));
    /// assert_eq!(Sink::parse("file:../etc/passwd"), Err(SinkError::FileName));
    /// ```
    pub fn parse(uri: &str) -> Result<Self, SinkError> {
        if uri.len() > Self::BYTES_MAX {
            return Err(SinkError::TooLong);
        }
        let target = target(uri).ok_or(SinkError::Scheme)?;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match target {
            SinkTarget::File(name) => {
                let is_legal = (1..=Self::FILE_LEN_MAX).contains(&name.len())
                    && name.bytes().all(|byte| is_word(byte) || byte == b'.')
                    && !name.starts_with('.');
                is_legal.then_some(()).ok_or(SinkError::FileName)
            }
            SinkTarget::Http(url) => check_url(url),
            SinkTarget::Sqs(queue) => {
                let is_legal =
                    (1..=Self::QUEUE_LEN_MAX).contains(&queue.len()) && queue.bytes().all(is_word);
                is_legal.then_some(()).ok_or(SinkError::QueueName)
            }
        }?;
        Ok(Self(uri.into()))
    }

    /// The URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind with its target.
    pub fn target(&self) -> SinkTarget<'_> {
        // The scheme was checked when the sink was built.
        target(&self.0).unwrap_or(SinkTarget::File(&self.0))
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn target(uri: &str) -> Option<SinkTarget<'_>> {
    if let Some(name) = uri.strip_prefix("file:") {
        return Some(SinkTarget::File(name));
    }
    if let Some(queue) = uri.strip_prefix("sqs://") {
        return Some(SinkTarget::Sqs(queue));
    }
    let is_http = uri.starts_with("http://") || uri.starts_with("https://");
    is_http.then_some(SinkTarget::Http(uri))
}

/// Checks what holds for every URL of a sink. Its delivery parses the URL in full.
fn check_url(url: &str) -> Result<(), SinkError> {
    let (_, rest) = url.split_once("://").ok_or(SinkError::Url)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_legal = !authority.is_empty()
        && !authority.starts_with(':')
        && !authority.contains('@')
        && !url.contains('#')
        && !url.contains(|c: char| c.is_whitespace() || c.is_control());
    is_legal.then_some(()).ok_or(SinkError::Url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_111_a_sink_is_a_plain_file_a_url_or_a_queue() {
        let target = |uri: &str| Sink::parse(uri).map(|sink| format!("{:?}", sink.target()));
        for (uri, parsed) in [
            ("file:done.ndjson", r#"File("done.ndjson")"#),
            (
                "http://127.0.0.1:80/x?y=1",
                r#"Http("http://127.0.0.1:80/x?y=1")"#,
            ),
            ("https://a.example", r#"Http("https://a.example")"#),
            ("sqs://done-tasks_1", r#"Sqs("done-tasks_1")"#),
        ] {
            assert_eq!(target(uri).as_deref(), Ok(parsed));
        }
        let long = format!("http://a/{}", "x".repeat(2_048));
        for (uri, error) in [
            ("", SinkError::Scheme),
            ("done.ndjson", SinkError::Scheme),
            ("ftp://a/", SinkError::Scheme),
            ("file:", SinkError::FileName),
            ("file:..", SinkError::FileName),
            ("file:.hidden", SinkError::FileName),
            ("file:../up", SinkError::FileName),
            ("file:/etc/passwd", SinkError::FileName),
            ("file:a/b", SinkError::FileName),
            ("file:a\\b", SinkError::FileName),
            ("file:a\0b", SinkError::FileName),
            ("http://", SinkError::Url),
            ("http:///path", SinkError::Url),
            ("http://user:word@a/", SinkError::Url),
            ("http://a/ b", SinkError::Url),
            ("http://a/#b", SinkError::Url),
            ("sqs://", SinkError::QueueName),
            ("sqs://a/b", SinkError::QueueName),
            ("sqs://a.fifo", SinkError::QueueName),
            (&long, SinkError::TooLong),
        ] {
            assert_eq!(target(uri), Err(error), "{uri}");
        }
    }
}
