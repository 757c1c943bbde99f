//! What a task does when it runs, told by its payload.

use std::{fmt, str::FromStr};

use bytes::Bytes;

/// The plan of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Succeeds after this many milliseconds.
    Succeed(u64),
    /// Fails this many times, then succeeds.
    Fail(u32),
    /// Fails for good.
    Fatal,
    /// Panics, each time.
    Panic,
    /// Takes its whole host down, each time.
    Poison,
}

impl Script {
    /// The payload that tells this.
    pub fn payload(self) -> Bytes {
        Bytes::from(self.to_string())
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeed(ms) => write!(f, "succeed {ms}"),
            Self::Fail(times) => write!(f, "fail {times}"),
            Self::Fatal => f.write_str("fatal 0"),
            Self::Panic => f.write_str("panic 0"),
            Self::Poison => f.write_str("poison 0"),
        }
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, number) = text.split_once(' ').ok_or("no number")?;
        let number: u64 = number
            .parse()
            .map_err(|_| format!("'{number}' is no number"))?;
        Ok(match word {
            "succeed" => Self::Succeed(number),
            "fail" => Self::Fail(u32::try_from(number).unwrap_or(u32::MAX)),
            "fatal" => Self::Fatal,
            "panic" => Self::Panic,
            "poison" => Self::Poison,
            _ => return Err(format!("'{word}' is no script")),
        })
    }
}
