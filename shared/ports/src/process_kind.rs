//! Kinds of processes that register.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

/// What a process says about itself, for people: a zone, a version, an address.
pub type Metadata = BTreeMap<Arc<str>, Arc<str>>;

/// The kind of a process that registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessKind {
    /// Runs handlers.
    #[default]
    Executor,
    /// Dispatches tasks to executors.
    Controller,
    /// Enqueues due tasks.
    Consumer,
    /// Serves clients.
    Frontend,
    /// Processes claims and reports.
    StatusController,
}

impl ProcessKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Executor,
        Self::Controller,
        Self::Consumer,
        Self::Frontend,
        Self::StatusController,
    ];

    /// The name on the wire and in the store.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Controller => "controller",
            Self::Consumer => "consumer",
            Self::Frontend => "frontend",
            Self::StatusController => "status-controller",
        }
    }
}

impl fmt::Display for ProcessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProcessKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            let text = text.escape_debug();
            format!("unknown kind '{text:.64}'; known are {}", known.join(", "))
        })
    }
}
