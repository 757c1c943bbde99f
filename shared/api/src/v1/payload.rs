//! Bytes on the wire: as the JSON they are, as base64, or as text.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize as _, Deserializer};
use serde_json::value::RawValue;

use crate::{
    ApiError, ErrorReason,
    check::{is_presentable, payload_len, presentable},
};

/// Reads a JSON value as its own text. Unlike an ordinary optional field, `null` is a value here.
pub(super) fn raw<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The three fields by which bytes may be given; at most one is.
pub(super) struct Forms {
    /// Name of the field that holds JSON; the others are named after it.
    pub(super) field: &'static str,
    pub(super) json: Option<Box<RawValue>>,
    pub(super) base64: Option<String>,
    pub(super) text: Option<String>,
}

/// Bytes that were given, and the media type that follows from their form. JSON has none: it is what bytes without a
/// media type are taken for when they can be read as it.
pub(super) struct Given {
    pub(super) bytes: Bytes,
    pub(super) content_type: Option<&'static str>,
}

impl Forms {
    /// The bytes that were given, exactly as sent.
    pub(super) fn take(self) -> Result<Option<Given>, ApiError> {
        let field = self.field;
        let given = match (self.json, self.base64, self.text) {
            (None, None, None) => return Ok(None),
            (Some(json), None, None) => {
                presentable(field, json.get())?;
                let json: Box<str> = json.into();
                Given {
                    bytes: Bytes::from(json.into_boxed_bytes()),
                    content_type: None,
                }
            }
            (None, Some(text), None) => {
                payload_len(field, text.len() / 4 * 3 - padding(&text))?;
                let bytes = STANDARD.decode(text).map_err(|error| {
                    ApiError::invalid(format!("{field}_base64"), ErrorReason::InvalidBase64, error)
                })?;
                Given {
                    bytes: Bytes::from(bytes),
                    content_type: Some("application/octet-stream"),
                }
            }
            (None, None, Some(text)) => Given {
                bytes: Bytes::from(text),
                content_type: Some("text/plain; charset=utf-8"),
            },
            _ => {
                let message = format!("give only one of {field}, {field}_base64 and {field}_text");
                return Err(ApiError::invalid(field, ErrorReason::Ambiguous, message));
            }
        };
        payload_len(field, given.bytes.len())?;
        Ok(Some(given))
    }
}

fn padding(base64: &str) -> usize {
    let end = base64.trim_end_matches('=').len();
    // Never more than the three bytes of the last group, for any text.
    (base64.len() - end).min(base64.len() / 4 * 3)
}

/// Bytes in the form that fits them.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) json: Option<Box<RawValue>>,
    pub(super) base64: Option<String>,
}

/// JSON if that is what the bytes are and nothing says otherwise, or else base64. Either way they are all there.
pub(super) fn show(bytes: &[u8], content_type: Option<&str>) -> Shown {
    if content_type.is_none_or(is_json)
        && let Ok(raw) = serde_json::from_slice::<&RawValue>(bytes)
        && raw.get().len() == bytes.len()
        && is_presentable(raw.get())
    {
        return Shown {
            json: Some(raw.to_owned()),
            base64: None,
        };
    }
    Shown {
        json: None,
        base64: Some(STANDARD.encode(bytes)),
    }
}

/// As [`show`] for bytes that carry no media type: what is text but not JSON is shown as text.
pub(super) fn show_readable(bytes: &[u8]) -> (Shown, Option<String>) {
    let shown = show(bytes, None);
    match std::str::from_utf8(bytes) {
        Ok(text) if shown.json.is_none() => (Shown::default(), Some(text.to_owned())),
        _ => (shown, None),
    }
}

impl Shown {
    /// The bytes again.
    pub(super) fn into_bytes(self, field: &'static str) -> Result<Option<Bytes>, ApiError> {
        let forms = Forms {
            field,
            json: self.json,
            base64: self.base64,
            text: None,
        };
        Ok(forms.take()?.map(|given| given.bytes))
    }
}

/// Whether a media type says that the bytes are JSON.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.to_ascii_lowercase().ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use dueline_domain::limits;

    #[test]
    fn f_005_bytes_survive_the_way_out_and_back_in() {
        let samples: [&[u8]; 9] = [
            b"",
            b"\0",
            b"null",
            b"{\"b\": 1.0,  \"a\":\t1e2}",
            "\"Grüße ☃\"".as_bytes(),
            b" 1 ",
            b"\xff\xfe",
            b"12345678901234567890.000",
            b"plain text",
        ];
        for bytes in samples {
            for content_type in [None, Some("application/json"), Some("text/plain")] {
                let shown = show(bytes, content_type);
                assert!(shown.json.is_none() || content_type != Some("text/plain"));
                let back = shown.into_bytes("payload").unwrap().unwrap();
                assert_eq!(back, bytes);
            }
        }
        assert!(show(b"{}", Some("application/problem+json")).json.is_some());
    }

    #[test]
    fn f_005_a_payload_over_the_limit_is_refused_with_the_limit() {
        let max = limits().payload_bytes_max;
        let forms = |len: usize, base64: bool| Forms {
            field: "payload",
            json: None,
            base64: base64.then(|| STANDARD.encode(vec![0; len])),
            text: (!base64).then(|| "x".repeat(len)),
        };
        for base64 in [false, true] {
            assert_eq!(forms(max, base64).take().unwrap().unwrap().bytes.len(), max);
            let error = forms(max + 1, base64).take().err().unwrap();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            assert_eq!(error.reason().name(), "payload_too_large");
            assert!(error.message().contains("262144"), "{error}");
        }
        for odd in ["=", "====", "A", "A===", "ä", "AAA=AAA="] {
            let forms = Forms {
                field: "payload",
                json: None,
                base64: Some(odd.into()),
                text: None,
            };
            assert_eq!(
                forms.take().err().unwrap().reason().name(),
                "invalid_base64"
            );
        }
    }
}
