//! JSON texts that Dueline stores and shows again.

use crate::{ApiError, ErrorReason};

/// Deepest nesting of objects and arrays.
const DEPTH_MAX: usize = 128;

/// Why clients cannot be expected to read a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonFault {
    /// It is nested deeper than [`DEPTH_MAX`].
    TooDeep,
    /// An escape names half of a surrogate pair. JSON's grammar allows it, and many parsers refuse it.
    NoCharacter,
}

/// Whether each client can read this JSON text, which is JSON by its grammar.
pub(crate) fn is_presentable(json: &str) -> bool {
    fault(json).is_none()
}

/// Checks that each client can read this JSON text, which is JSON by its grammar.
pub(crate) fn presentable(field: &'static str, json: &str) -> Result<(), ApiError> {
    let (reason, message) = match fault(json) {
        None => return Ok(()),
        Some(JsonFault::TooDeep) => (ErrorReason::TooDeep, "JSON may be nested at most 128 deep"),
        Some(JsonFault::NoCharacter) => (
            ErrorReason::InvalidUnicode,
            "an escape names half of a surrogate pair, which is no character",
        ),
    };
    Err(ApiError::invalid(field, reason, message))
}

fn fault(json: &str) -> Option<JsonFault> {
    let (mut depth, mut in_string) = (0_usize, false);
    let mut rest = json.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'\\' if in_string => {
                let Some(after) = after_escape(rest) else {
                    return Some(JsonFault::NoCharacter);
                };
                rest = after;
            }
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(JsonFault::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// What follows an escape, whose backslash has been read; `None` for an escape that names no character.
fn after_escape(text: &[u8]) -> Option<&[u8]> {
    let Some(text) = text.strip_prefix(b"u") else {
        return text.get(1..);
    };
    let (first, rest) = code_unit(text)?;
    match first {
        0xd800..=0xdbff => {
            let (second, rest) = code_unit(rest.strip_prefix(b"\\u")?)?;
            matches!(second, 0xdc00..=0xdfff).then_some(rest)
        }
        0xdc00..=0xdfff => None,
        _ => Some(rest),
    }
}

fn code_unit(text: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = text.split_at_checked(4)?;
    let digits = std::str::from_utf8(digits).ok()?;
    Some((u16::from_str_radix(digits, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_005_depth_is_counted_outside_of_texts_only() {
        assert!(is_presentable(&format!("\"{}\"", "[".repeat(500))));
        assert!(is_presentable(r#"["\"[", {"a": []}]"#));
        assert!(is_presentable(&"[]".repeat(500)));
        assert!(is_presentable(&"[".repeat(128)));
        assert!(!is_presentable(&"[".repeat(129)));
    }

    #[test]
    fn f_005_half_a_surrogate_pair_is_no_character() {
        for good in [r#""\ud83d\ude00""#, r#""\\ud800""#, r#""\u00e4\n\"""#] {
            assert!(is_presentable(good), "{good}");
        }
        for bad in [
            r#""\ud800""#,
            r#""\ude00\ud83d""#,
            r#""\ud83dx""#,
            r#""\ud83d\u0041""#,
            r#"{"\udfff": 1}"#,
        ] {
            assert!(!is_presentable(bad), "{bad}");
        }
    }
}
