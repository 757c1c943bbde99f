//! Texts of HTTP client errors.

/// Whether the server closed the connection without an answer, as happens to a request that is sent over a kept-alive
/// connection while the server closes it for being idle.
pub fn is_unanswered(error: &reqwest::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};

    if error.is_timeout() || error.is_connect() {
        return false;
    }
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let is_closed = error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_canceled());
        let is_reset = error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            )
        });
        if is_closed || is_reset {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The text of an error with its causes, because the outermost error alone says little. Without the URL, which may
/// contain secrets.
pub fn causes(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "timed out"
    } else if error.is_connect() {
        "failed to connect"
    } else {
        "failed"
    };
    let mut texts = vec![what.to_owned()];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.dedup();
    texts.join(": ")
}
