//! The script of a task: its payload says what its handler does.

use std::{fmt, str::FromStr};

use bytes::Bytes;

/// What a handler does when it runs a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskScript {
    /// Succeeds after this many milliseconds.
    Succeed(u64),
    /// Fails this many times, then succeeds.
    Fail(u32),
    /// Fails for good.
    Fatal,
    /// Panics, each time.
    Panic,
    /// Crashes the host, each time.
    Poison,
    /// Submits a task from inside each run; fails this many times, then succeeds.
    Stage(u32),
}

impl TaskScript {
    /// The script as a payload.
    pub fn payload(self) -> Bytes {
        Bytes::from(self.to_string())
    }
}

impl fmt::Display for TaskScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeed(ms) => write!(f, "succeed {ms}"),
            Self::Fail(times) => write!(f, "fail {times}"),
            Self::Fatal => f.write_str("fatal 0"),
            Self::Panic => f.write_str("panic 0"),
            Self::Poison => f.write_str("poison 0"),
            Self::Stage(times) => write!(f, "stage {times}"),
        }
    }
}

impl FromStr for TaskScript {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, number) = text.split_once(' ').ok_or("no number")?;
        let number: u64 = number
            .parse()
            .map_err(|_| format!("'{number}' is not a number"))?;
        Ok(match word {
            "succeed" => Self::Succeed(number),
            "fail" => Self::Fail(u32::try_from(number).unwrap_or(u32::MAX)),
            "fatal" => Self::Fatal,
            "panic" => Self::Panic,
            "poison" => Self::Poison,
            "stage" => Self::Stage(u32::try_from(number).unwrap_or(u32::MAX)),
            _ => return Err(format!("'{word}' is not a script")),
        })
    }
}
