//! The order of a list of tasks.

use std::{fmt, str::FromStr};

use dueline_domain::StateKind;

/// The order of a list of tasks. The name of a descending order begins with a hyphen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListOrder {
    /// The task that was posted last comes first.
    #[default]
    Newest,
    /// The task that was posted first comes first.
    Oldest,
    /// The task that is due first comes first.
    DueFirst,
    /// The task that is due last comes first.
    DueLast,
}

impl ListOrder {
    /// All orders.
    pub const ALL: [Self; 4] = [Self::Newest, Self::Oldest, Self::DueFirst, Self::DueLast];

    /// The states whose tasks have an order by due time: they wait for their time, or for that of their next try. No index
    /// keeps the others by it.
    pub const WITH_DUE_TIME: [StateKind; 2] = [StateKind::New, StateKind::Retriable];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Newest => "-posted",
            Self::Oldest => "posted",
            Self::DueFirst => "due",
            Self::DueLast => "-due",
        }
    }

    /// Whether this is an order by due time.
    pub const fn is_by_due_time(self) -> bool {
        matches!(self, Self::DueFirst | Self::DueLast)
    }

    /// Whether later times come first.
    pub const fn is_descending(self) -> bool {
        matches!(self, Self::Newest | Self::DueLast)
    }
}

impl fmt::Display for ListOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ListOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|order| order.name() == text);
        found.ok_or_else(|| "must be posted, -posted, due or -due".to_owned())
    }
}
