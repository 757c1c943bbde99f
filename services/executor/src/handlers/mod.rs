//! Built-in handlers.

pub(crate) mod exec;
pub(crate) mod exec_groups;
pub(crate) mod exec_process;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod http_reply;
pub(crate) mod noop;

use dueline_api::ApiError;

use crate::Failure;

/// The failure of a job whose handler settings are invalid, which no retry can cure.
fn invalid_settings(error: &ApiError) -> Failure {
    Failure::fatal(error.message())
}

/// Cuts a result to `max` bytes. A cut result ends with a line that says so, which is part of the `max` bytes. `total`
/// is the length of the whole result, `None` if it is unknown.
fn cut_result(mut bytes: Vec<u8>, max: usize, total: Option<usize>) -> Vec<u8> {
    const SHORT: &str = "\n[cut]";
    if total.is_some_and(|total| total <= max) {
        return bytes;
    }
    // The mark reduces the room for the result. Its own length varies with the number of digits of `kept`.
    let counting_mark = |total: usize, kept: usize| format!("\n[cut: {kept} of {total} bytes]");
    let counted = total.filter(|total| counting_mark(*total, max).len() <= max);
    let longest = counted.map_or(SHORT.len(), |total| counting_mark(total, max).len());
    let kept = kept_len(&bytes, max.saturating_sub(longest));
    let mark = counted.map_or_else(|| SHORT.to_owned(), |total| counting_mark(total, kept));
    bytes.truncate(kept);
    bytes.extend_from_slice(&mark.as_bytes()[..mark.len().min(max)]);
    bytes
}

/// The length of the first at most `max` bytes that does not end within a character of a text.
fn kept_len(bytes: &[u8], max: usize) -> usize {
    let max = max.min(bytes.len());
    match std::str::from_utf8(&bytes[..max]) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_result_says_so_and_does_not_exceed_its_limit() {
        let whole = cut_result(b"abc".to_vec(), 3, Some(3));
        assert_eq!(whole, b"abc");
        let cut = cut_result(vec![b'x'; 100], 100, Some(5_000));
        assert!((95..=100).contains(&cut.len()));
        let kept = cut.iter().filter(|byte| **byte == b'x').count();
        let mark = format!("x\n[cut: {kept} of 5000 bytes]");
        assert!(cut.ends_with(mark.as_bytes()));
        assert_eq!(cut_result(vec![b'x'; 2], 2, None), b"\n[");
        assert_eq!(cut_result(vec![b'x'; 10], 10, Some(5_000)), b"xxxx\n[cut]");
        assert_eq!(cut_result(Vec::new(), 0, Some(5_000)), b"");
    }

    #[test]
    fn a_text_is_not_cut_within_a_character() {
        let text = "ä".repeat(100).into_bytes();
        for max in 30..60 {
            let cut = cut_result(text[..max].to_vec(), max, Some(200));
            assert!(cut.len() <= max);
            assert!(String::from_utf8(cut).unwrap().contains("\n[cut: "));
        }
    }
}
