//! The payload flags of the command line.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dueline_api::{ErrorKind, ErrorReason};
use dueline_domain::limits;
use serde_json::value::RawValue;

use crate::exit::CliError;

/// The flags that give a payload.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PayloadArgs {
    /// Input of the handler: JSON, or @FILE, or - for standard input (files may hold any bytes)
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with = "payload_text")]
    pub(crate) payload: Option<String>,

    /// Input of the handler: this text, unchanged
    #[arg(long, value_name = "TEXT")]
    pub(crate) payload_text: Option<String>,
}

/// A payload in one of the encodings of the API.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    /// JSON.
    pub(crate) json: Option<Box<RawValue>>,
    /// Text.
    pub(crate) text: Option<String>,
    /// Bytes, in base64.
    pub base64: Option<String>,
}

impl PayloadArgs {
    /// Whether a payload flag is set.
    pub(crate) fn is_given(&self) -> bool {
        self.payload.is_some() || self.payload_text.is_some()
    }

    /// The payload that the flags give or name.
    pub(crate) fn read(self) -> Result<Payload, CliError> {
        let Some(given) = self.payload else {
            return Ok(Payload {
                text: self.payload_text,
                ..Payload::default()
            });
        };
        if given == "-" {
            return Ok(Payload::of(read("standard input", io::stdin().lock())?));
        }
        if let Some(path) = given.strip_prefix('@') {
            let file = File::open(path).map_err(|error| unreadable(path, &error))?;
            return Ok(Payload::of(read(path, file)?));
        }
        let json = json(&given).map_err(|error| {
            CliError::invalid(format!("--payload is not JSON: {error}")).with_hint(
                "use --payload-text for plain text, or --payload @FILE for the content of a file",
            )
        })?;
        Ok(Payload {
            json: Some(json),
            ..Payload::default()
        })
    }
}

impl Payload {
    /// Bytes as JSON if they are JSON, else as text if they are UTF-8, else in base64.
    fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => match json(&text) {
                Ok(json) => Self {
                    json: Some(json),
                    ..Self::default()
                },
                Err(_) => Self {
                    text: Some(text),
                    ..Self::default()
                },
            },
            Err(error) => {
                let base64 = STANDARD.encode(error.as_bytes());
                Self {
                    base64: Some(base64),
                    ..Self::default()
                }
            }
        }
    }
}

fn json(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::from_str::<&RawValue>(text).map(ToOwned::to_owned)
}

fn read(name: &str, from: impl io::Read) -> Result<Vec<u8>, CliError> {
    let bytes_max = limits().payload_bytes_max;
    let bytes = read_at_most(bytes_max, name, from)?;
    bytes.ok_or_else(|| {
        let message =
            format!("{name} is too large for a payload; at most {bytes_max} bytes are allowed");
        CliError::invalid(message)
            .with_hint("store it where the handler can read it, and submit a reference to it")
    })
}

/// Most bytes of a text file that a command reads as a whole: a job definition or a price list.
pub(crate) const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The text of a file, of which at most [`TEXT_BYTES_MAX`] and one byte are read: it may be a device without an end.
pub(crate) fn read_text(name: &str, from: impl io::Read) -> Result<String, CliError> {
    let Some(bytes) = read_at_most(TEXT_BYTES_MAX, name, from)? else {
        let message = format!("{name} is too large; at most {TEXT_BYTES_MAX} bytes are read");
        return Err(CliError::new(
            ErrorKind::TooLarge,
            ErrorReason::FileTooLarge,
            message,
        ));
    };
    let invalid = |_| CliError::invalid(format!("{name} is not a text in UTF-8"));
    String::from_utf8(bytes).map_err(invalid)
}

/// As [`read_text`], of the file at a path.
pub(crate) fn read_text_file(path: &Path) -> Result<String, CliError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    read_text(&name, file)
}

/// All bytes, or `None` if there are more than `bytes_max`.
fn read_at_most(
    bytes_max: usize,
    name: &str,
    from: impl io::Read,
) -> Result<Option<Vec<u8>>, CliError> {
    let mut bytes = Vec::new();
    from.take(bytes_max as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, &error))?;
    Ok((bytes.len() <= bytes_max).then_some(bytes))
}

/// The error of an input that cannot be read.
pub(crate) fn unreadable(name: &str, error: &io::Error) -> CliError {
    CliError::invalid(format!("cannot read {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload_of(payload: &str) -> Result<Payload, CliError> {
        let payload = Some(payload.to_owned());
        PayloadArgs {
            payload,
            payload_text: None,
        }
        .read()
    }

    #[test]
    fn json_is_sent_byte_for_byte() {
        let text = "{\"n\": 12345678901234567890.50}";
        assert_eq!(payload_of(text).unwrap().json.unwrap().get(), text);
        assert!(payload_of("not json").is_err());
    }

    #[test]
    fn a_file_is_sent_in_the_encoding_that_fits_its_content() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("p");
        let at = format!("@{}", path.display());
        std::fs::write(&path, " [1]\n").unwrap();
        assert_eq!(payload_of(&at).unwrap().json.unwrap().get(), "[1]");
        std::fs::write(&path, "plain").unwrap();
        assert_eq!(payload_of(&at).unwrap().text.as_deref(), Some("plain"));
        std::fs::write(&path, [0xff, 0]).unwrap();
        assert_eq!(payload_of(&at).unwrap().base64.as_deref(), Some("/wA="));
        std::fs::write(&path, vec![b'x'; limits().payload_bytes_max + 1]).unwrap();
        assert!(
            payload_of(&at)
                .unwrap_err()
                .to_string()
                .contains("too large")
        );
        assert!(payload_of("@/no/such/file").is_err());
    }
}
