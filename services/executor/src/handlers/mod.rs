//! Handlers that need no code of the user's.

pub(crate) mod exec;
pub(crate) mod exec_process;
pub(crate) mod http;
pub(crate) mod http_guard;
pub(crate) mod http_reply;
pub(crate) mod noop;

use serde::de::DeserializeOwned;

/// Settings of a built-in handler that cannot work; the text says which and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{handler} settings: {message}")]
pub struct SettingsError {
    /// Kind of the handler.
    pub handler: &'static str,
    /// What is wrong.
    pub message: String,
}

impl SettingsError {
    fn new(handler: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { handler, message }
    }
}

/// Largest result of a built-in handler: what fits into a task.
pub(crate) const RESULT_BYTES_MAX: usize = dueline_domain::limits().payload_bytes_max;

/// Result size of a job that names none.
pub(crate) const fn result_bytes_default() -> usize {
    64 * 1024
}

fn from_json<T: DeserializeOwned>(handler: &'static str, json: &str) -> Result<T, SettingsError> {
    serde_json::from_str(json).map_err(|error| SettingsError::new(handler, error.to_string()))
}

fn check_result_max(handler: &'static str, bytes: usize) -> Result<(), SettingsError> {
    if bytes > RESULT_BYTES_MAX {
        let message = format!("result_max_bytes must be at most {RESULT_BYTES_MAX}");
        return Err(SettingsError::new(handler, message));
    }
    Ok(())
}

/// A bounded result: what exceeds `max` is replaced by a line that says so, so that nobody takes a part for the
/// whole. `total` counts what there would have been, `None` when nobody looked.
fn cut_result(mut bytes: Vec<u8>, max: usize, total: Option<usize>) -> Vec<u8> {
    let mark = match total {
        Some(total) if total <= max => return bytes,
        Some(total) => format!("\n[cut: {total} bytes in all]"),
        None => "\n[cut]".to_owned(),
    };
    bytes.truncate(max.saturating_sub(mark.len()));
    bytes.extend_from_slice(&mark.as_bytes()[..mark.len().min(max)]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_result_says_so_and_keeps_within_its_bound() {
        let whole = cut_result(b"abc".to_vec(), 3, Some(3));
        assert_eq!(whole, b"abc");
        let cut = cut_result(vec![b'x'; 100], 100, Some(5_000));
        assert_eq!(cut.len(), 100);
        assert!(cut.ends_with(b"x\n[cut: 5000 bytes in all]"));
        assert_eq!(cut_result(vec![b'x'; 2], 2, None), b"\n[");
    }
}
