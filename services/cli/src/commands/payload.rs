//! Payloads as they are given on the command line.

use std::{
    fs::File,
    io::{self, Read as _},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dueline_domain::limits;
use serde_json::value::RawValue;

use crate::exit::CliError;

/// The flags that give a payload.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PayloadArgs {
    /// What the handler gets: JSON, or @FILE, or - for standard input (files may hold anything)
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with = "payload_text")]
    pub(crate) payload: Option<String>,

    /// What the handler gets: this text as it is
    #[arg(long, value_name = "TEXT")]
    pub(crate) payload_text: Option<String>,
}

/// A payload in one of the forms of the wire.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    /// JSON.
    pub(crate) json: Option<Box<RawValue>>,
    /// A text.
    pub(crate) text: Option<String>,
    /// Any bytes.
    pub base64: Option<String>,
}

impl PayloadArgs {
    /// Whether a flag gives a payload.
    pub(crate) fn is_given(&self) -> bool {
        self.payload.is_some() || self.payload_text.is_some()
    }

    /// Reads what the flags name.
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
                "--payload-text takes a text as it is, --payload @FILE the content of a file",
            )
        })?;
        Ok(Payload {
            json: Some(json),
            ..Payload::default()
        })
    }
}

impl Payload {
    /// Bytes in the form that fits them.
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

/// Reads no more than what could be sent anyway.
fn read(name: &str, from: impl io::Read) -> Result<Vec<u8>, CliError> {
    let bytes_max = limits().payload_bytes_max;
    let mut bytes = Vec::new();
    from.take(bytes_max as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, &error))?;
    if bytes.len() > bytes_max {
        let message =
            format!("{name} is too large for a payload; at most {bytes_max} bytes are allowed");
        return Err(CliError::invalid(message).with_hint("put it where the handler can reach it"));
    }
    Ok(bytes)
}

/// A file that was named cannot be read.
pub(crate) fn unreadable(name: &str, error: &io::Error) -> CliError {
    CliError::invalid(format!("cannot read {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(payload: &str) -> Result<Payload, CliError> {
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
        assert_eq!(given(text).unwrap().json.unwrap().get(), text);
        assert!(given("not json").is_err());
    }

    #[test]
    fn a_file_is_sent_in_the_form_that_fits_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("p");
        let at = format!("@{}", path.display());
        std::fs::write(&path, " [1]\n").unwrap();
        assert_eq!(given(&at).unwrap().json.unwrap().get(), "[1]");
        std::fs::write(&path, "plain").unwrap();
        assert_eq!(given(&at).unwrap().text.as_deref(), Some("plain"));
        std::fs::write(&path, [0xff, 0]).unwrap();
        assert_eq!(given(&at).unwrap().base64.as_deref(), Some("/wA="));
        std::fs::write(&path, vec![b'x'; limits().payload_bytes_max + 1]).unwrap();
        assert!(given(&at).unwrap_err().to_string().contains("too large"));
        assert!(given("@/no/such/file").is_err());
    }
}
