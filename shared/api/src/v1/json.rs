//! From the bytes of a body to a type, with errors that name the field.

use dueline_domain::limits;
use serde::de::DeserializeOwned;
use serde_json::{error::Category, value::RawValue};

use crate::{ApiError, ErrorKind, ErrorReason, check};

/// Parses a body that must be one JSON object.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(text)
        .map_err(|error| explain(text, &error))
        .and_then(|parsed| {
            // An array would be taken for an object without names.
            if first(text) == Some(b'[') {
                return Err(ApiError::invalid(
                    "body",
                    ErrorReason::InvalidType,
                    "must be an object, not an array",
                ));
            }
            Ok(parsed)
        })
}

/// The items of a batch: the elements of a JSON array, or the lines of NDJSON that are not blank. Each is parsed by
/// itself afterwards, so that a wrong one does not spoil the others.
pub fn parse_items(text: &[u8], ndjson: bool) -> Result<Vec<&[u8]>, ApiError> {
    let max = limits().batch_len_max;
    let items: Vec<&[u8]> = if ndjson {
        text.split(|byte| *byte == b'\n')
            .map(<[u8]>::trim_ascii)
            .filter(|line| !line.is_empty())
            .take(max + 1)
            .collect()
    } else {
        let items: Vec<&RawValue> =
            serde_json::from_slice(text).map_err(|error| explain(text, &error))?;
        items.iter().map(|item| item.get().as_bytes()).collect()
    };
    if items.is_empty() {
        let message = "the batch holds no task";
        return Err(ApiError::new(
            ErrorKind::Invalid,
            ErrorReason::NoTask,
            message,
        ));
    }
    check::batch_len(items.len())?;
    Ok(items)
}

fn first(text: &[u8]) -> Option<u8> {
    text.trim_ascii_start().first().copied()
}

/// What a parse error means to the caller.
fn explain(text: &[u8], error: &serde_json::Error) -> ApiError {
    let message = error.to_string();
    if error.classify() != Category::Data {
        return ApiError::new(
            ErrorKind::Invalid,
            ErrorReason::MalformedJson,
            format!("body is not JSON: {message}"),
        );
    }
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = message.strip_suffix(&place).unwrap_or(&message);
    let mut path = path_at(text, offset(text, error.line(), error.column()));
    let reason = [
        ("unknown field", ErrorReason::UnknownField),
        ("missing field", ErrorReason::MissingField),
        ("duplicate field", ErrorReason::DuplicateField),
        ("unknown variant", ErrorReason::UnknownValue),
        ("invalid type", ErrorReason::InvalidType),
    ]
    .into_iter()
    .find(|(start, _)| what.starts_with(start))
    .map_or(ErrorReason::InvalidValue, |(_, reason)| reason);
    if reason == ErrorReason::MissingField
        && let Some(name) = what.split('`').nth(1)
    {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
    }
    if path.is_empty() {
        path.push_str("body");
    }
    match mismatch(what) {
        Some(words) => ApiError::invalid(path, reason, words),
        None => ApiError::invalid(path, reason, what),
    }
}

/// `invalid type: string "x", expected i64` in the words of JSON instead of those of this program's language.
fn mismatch(what: &str) -> Option<String> {
    let (_, rest) = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|start| what.strip_prefix(start).map(|rest| (start, rest)))?;
    // The value may be a text that holds these very words; what was expected holds none of a caller's.
    let (got, expected) = rest.rsplit_once(", expected ")?;
    let got = match got.split_once(' ') {
        _ if got == "map" => "an object",
        _ if got == "sequence" => "an array",
        Some(("string", text)) => text,
        Some(("integer" | "boolean", value)) => value.trim_matches('`'),
        Some(("floating", value)) => value.trim_start_matches("point ").trim_matches('`'),
        _ => got,
    };
    let expected = match expected.trim_matches('`') {
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "f32" | "f64" => "a number",
        "a boolean" | "bool" => "true or false",
        "a string" | "string" | "str" | "a borrowed string" => "a text",
        "a sequence" | "a borrowed sequence" => "an array",
        "a map" => "an object",
        named if named.starts_with("struct ") => "an object",
        named if named.starts_with("enum ") || named.starts_with("variant") => "a text",
        other => other,
    };
    Some(format!("must be {expected}, not {got}"))
}

/// The byte at a position as serde_json counts: lines from 1, columns in bytes.
fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let line_start = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum::<usize>();
    (line_start + column).min(text.len())
}

/// The path of the value that lies at `end`, as in `backoff.standard.jitter` or `tags[2]`.
fn path_at(text: &[u8], end: usize) -> String {
    enum Frame {
        Object { key: String, at_key: bool },
        Array { index: usize },
    }
    let mut frames: Vec<Frame> = Vec::new();
    let mut rest = text[..end].iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'{' => frames.push(Frame::Object {
                key: String::new(),
                at_key: true,
            }),
            b'[' => frames.push(Frame::Array { index: 0 }),
            b'}' | b']' => {
                frames.pop();
            }
            b'"' => {
                let mut content = Vec::new();
                while let Some(byte) = rest.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => content.extend(rest.next()),
                        byte => content.push(*byte),
                    }
                }
                if let Some(Frame::Object { key, at_key: true }) = frames.last_mut() {
                    *key = String::from_utf8_lossy(&content).chars().take(64).collect();
                }
            }
            b':' => {
                if let Some(Frame::Object { at_key, .. }) = frames.last_mut() {
                    *at_key = false;
                }
            }
            b',' => match frames.last_mut() {
                Some(Frame::Object { at_key, .. }) => *at_key = true,
                Some(Frame::Array { index }) => *index += 1,
                None => {}
            },
            _ => {}
        }
    }
    let mut path = String::new();
    for frame in frames {
        match frame {
            Frame::Object { key, .. } => {
                if !path.is_empty() && !key.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
            }
            Frame::Array { index } => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{JobSpec, TaskSubmit};

    fn failure<T: DeserializeOwned>(text: &str) -> (String, Option<String>) {
        let error = parse::<T>(text.as_bytes())
            .err()
            .unwrap_or_else(|| panic!("{text} was accepted"));
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let field = error.field().map(str::to_owned);
        (error.reason().to_string(), field)
    }

    #[test]
    fn f_020_a_wrong_field_is_named_with_its_path() {
        for (text, reason, field) in [
            (r#"{"wieght": 1}"#, "unknown_field", "wieght"),
            (r#"{"weight": "x"}"#, "invalid_type", "weight"),
            (r#"{"weight": [1]}"#, "invalid_type", "weight"),
            (r#"{"weight": 1, "weight": 2}"#, "duplicate_field", "weight"),
            (r#"{"tags": ["a",  7]}"#, "invalid_type", "tags[1]"),
            (r#"{"delay_ms": -1}"#, "invalid_value", "delay_ms"),
            (
                "{\"name\": \"a\\\"{,\",\n \"backoff\": {\"jitter\": true}}",
                "invalid_type",
                "backoff.jitter",
            ),
            ("[]", "invalid_type", "body"),
            ("7", "invalid_type", "body"),
        ] {
            let (got, at) = failure::<TaskSubmit>(text);
            assert_eq!(
                (got.as_str(), at.as_deref()),
                (reason, Some(field)),
                "{text}"
            );
        }
        let (reason, field) = failure::<JobSpec>(r#"{"info": "x", "handler": {"config": {}}}"#);
        assert_eq!(reason, "missing_field");
        assert_eq!(field.as_deref(), Some("handler.kind"));
    }

    #[test]
    fn a_wrong_type_is_told_in_the_words_of_json() {
        let message = |text: &str| parse::<TaskSubmit>(text.as_bytes()).unwrap_err();
        for (text, wanted) in [
            (
                r#"{"weight": "x, expected y"}"#,
                r#"weight: must be a whole number, not "x, expected y""#,
            ),
            (
                r#"{"weight": 1.5}"#,
                "weight: must be a whole number, not 1.5",
            ),
            (
                r#"{"delay_ms": -1}"#,
                "delay_ms: must be a whole number of 0 or more, not -1",
            ),
            (r#"{"name": {}}"#, "name: must be a text, not an object"),
            (r#"{"tags": true}"#, "tags: must be an array, not true"),
            ("7", "body: must be an object, not 7"),
            ("[]", "body: must be an object, not an array"),
        ] {
            assert_eq!(message(text).message(), wanted);
        }
        let error = parse::<JobSpec>(br#"{"handler": "exec"}"#).unwrap_err();
        assert_eq!(error.message(), "handler: must be an object, not \"exec\"");
        let error = parse_items(b"{}", false).unwrap_err();
        assert_eq!(error.message(), "body: must be an array, not an object");
    }

    #[test]
    fn f_001_broken_json_is_told_with_its_position() {
        for text in ["{", "{\"name\": }", "{} {}", "{\"weight\": 1e999}", "nul"] {
            let error = parse::<TaskSubmit>(text.as_bytes()).unwrap_err();
            assert_eq!(error.reason().name(), "malformed_json", "{text}");
            assert!(error.message().contains("line 1 column"), "{error}");
        }
    }

    #[test]
    fn a_batch_is_an_array_or_lines() {
        let array = parse_items(br#"[{"a": 1}, 7]"#, false).unwrap();
        assert_eq!(array, [b"{\"a\": 1}".as_slice(), b"7"]);
        let lines = parse_items(b"{\"a\": 1}\r\n\n 7 \n", true).unwrap();
        assert_eq!(lines, array);
        assert_eq!(
            parse_items(b"[]", false).unwrap_err().reason().name(),
            "no_task"
        );
        let many = b"1\n".repeat(10_001);
        let error = parse_items(&many, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.message().contains("10000"));
    }
}
