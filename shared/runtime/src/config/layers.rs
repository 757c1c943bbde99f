//! Lays flags over the environment over the file over the defaults, and remembers where each value came from.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use super::{
    ConfigProblem, Settings,
    nearest::{nearest, nearest_key},
};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("configuration file {path} is not TOML: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        message: String,
    },
    /// There is no such setting.
    #[error("unknown setting '{key}' ({origin}){}", hint(nearest.as_deref()))]
    UnknownKey {
        /// What was given.
        key: String,
        /// By whom.
        origin: Origin,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// The value does not fit the setting.
    #[error("setting '{key}' ({origin}): {message}")]
    BadValue {
        /// The setting.
        key: String,
        /// Who set it.
        origin: Origin,
        /// What is wrong.
        message: String,
    },
    /// Values that do not go together.
    #[error("{}", lines(.0))]
    Problems(Vec<ConfigProblem>),
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; config.default.toml lists all settings".into(),
        |name| format!("; did you mean '{name}'?"),
    )
}

fn lines(problems: &[ConfigProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What was given, before it is laid over each other.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The file and its text.
    pub file: Option<(PathBuf, String)>,
    /// The environment; only `DUELINE_*` is looked at.
    pub env: BTreeMap<String, String>,
    /// Flag, setting and value, in the order given; a later one wins.
    pub flags: Vec<(String, String, String)>,
}

/// The settings that hold, and why.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Where each setting came from, by its dotted name.
    pub origins: BTreeMap<String, Origin>,
    /// Remarks for the log, such as environment variables that set nothing.
    pub notes: Vec<String>,
}

/// Variables of this prefix set the setting that the rest names: `DUELINE_SERVER_LISTEN` is `server.listen`.
const ENV_PREFIX: &str = "DUELINE_";
/// Variables that are no settings: those of clients, and the file.
const ENV_OTHERS: [&str; 4] = [
    "DUELINE_CALLER",
    "DUELINE_CONFIG",
    "DUELINE_REQUEST_TIMEOUT",
    "DUELINE_SERVER",
];

impl Layers {
    /// Lays everything over each other. Relations are not checked yet, see [`Loaded::checked`].
    pub fn load(self) -> Result<Loaded, ConfigError> {
        let mut merge = Merge::new();
        if let Some((path, text)) = self.file {
            merge.file(&path, &text)?;
        }
        merge.env(&self.env)?;
        for (flag, key, text) in self.flags {
            merge.set_text(&key, &text, Origin::Flag(flag))?;
        }
        merge.finish()
    }
}

impl Loaded {
    /// Itself when [`Settings::check`] finds nothing.
    pub fn checked(self) -> Result<Self, ConfigError> {
        self.settings.check().map_err(ConfigError::Problems)?;
        Ok(self)
    }
}

struct Merge {
    defaults: Table,
    /// Dotted names of all settings.
    known: Vec<String>,
    effective: Table,
    origins: BTreeMap<String, Origin>,
    notes: Vec<String>,
}

impl Merge {
    fn new() -> Self {
        let defaults = defaults();
        let known = keys(&defaults);
        Self {
            effective: defaults.clone(),
            origins: known
                .iter()
                .map(|key| (key.clone(), Origin::Default))
                .collect(),
            notes: Vec::new(),
            defaults,
            known,
        }
    }

    fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| ConfigError::Syntax {
                path: path.to_owned(),
                message: error.to_string().trim_end().to_owned(),
            })?;
        self.table("", table, &Origin::File(path.to_owned()))
    }

    /// Sets all that a table of the file holds.
    fn table(&mut self, prefix: &str, table: Table, origin: &Origin) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = format!("{prefix}{name}");
            match value {
                Value::Table(inner) if !self.is_known(&key) && !inner.is_empty() => {
                    self.table(&format!("{key}."), inner, origin)?;
                }
                // An empty section sets nothing.
                Value::Table(inner) if inner.is_empty() && self.is_section(&key) => {}
                value => self.set(&key, value, origin.clone())?,
            }
        }
        Ok(())
    }

    fn env(&mut self, env: &BTreeMap<String, String>) -> Result<(), ConfigError> {
        let by_variable: BTreeMap<String, String> = self
            .known
            .iter()
            .map(|key| (variable(key), key.clone()))
            .collect();
        for (name, text) in env {
            if !name.starts_with(ENV_PREFIX) || ENV_OTHERS.contains(&name.as_str()) {
                continue;
            }
            let origin = Origin::Env(name.clone());
            if let Some(key) = by_variable.get(name) {
                self.set_text(key, text, origin)?;
                continue;
            }
            // A slip of the pen is refused. What resembles no setting is left alone, because orchestrators invent
            // variables such as DUELINE_PORT_7070_TCP_ADDR for a service of this name.
            let known = by_variable.keys().map(String::as_str);
            if let Some(meant) = nearest(name, known) {
                return Err(ConfigError::UnknownKey {
                    key: name.clone(),
                    origin: Origin::Env(name.clone()),
                    nearest: Some(meant.to_owned()),
                });
            }
            self.notes
                .push(format!("environment variable {name} sets nothing"));
        }
        Ok(())
    }

    /// Sets what a flag or a variable gave as text, read as the type of the default.
    fn set_text(&mut self, key: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        let bad = |message: String| ConfigError::BadValue {
            key: key.to_owned(),
            origin: origin.clone(),
            message,
        };
        let value = match get(&self.defaults, key) {
            Some(Value::Boolean(_)) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Value::Boolean(true),
                "false" | "no" | "off" | "0" => Value::Boolean(false),
                _ => return Err(bad(format!("'{text}' is neither true nor false"))),
            },
            Some(Value::Integer(_)) => match text.trim().parse() {
                Ok(number) => Value::Integer(number),
                Err(_) => return Err(bad(format!("'{text}' is not a whole number"))),
            },
            Some(Value::Array(_)) => {
                let items = text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                Value::Array(items.map(|item| Value::String(item.to_owned())).collect())
            }
            _ => Value::String(text.to_owned()),
        };
        self.set(key, value, origin)
    }

    fn set(&mut self, key: &str, value: Value, origin: Origin) -> Result<(), ConfigError> {
        if !self.is_known(key) {
            if self.is_section(key) {
                let message = format!("is a section; write [{key}] and its settings below");
                return Err(ConfigError::BadValue {
                    key: key.to_owned(),
                    origin,
                    message,
                });
            }
            let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
            let nearest = nearest_key(key, &known).map(str::to_owned);
            return Err(ConfigError::UnknownKey {
                key: key.to_owned(),
                origin,
                nearest,
            });
        }
        // Tried alone on top of the defaults, so that the error is this setting's and no other's.
        let mut alone = self.defaults.clone();
        put(&mut alone, key, value.clone());
        if let Err(error) = alone.try_into::<Settings>() {
            let message = error.message().to_owned();
            return Err(ConfigError::BadValue {
                key: key.to_owned(),
                origin,
                message,
            });
        }
        put(&mut self.effective, key, value);
        self.origins.insert(key.to_owned(), origin);
        Ok(())
    }

    fn finish(self) -> Result<Loaded, ConfigError> {
        let settings = self
            .effective
            .try_into()
            .map_err(|error| ConfigError::BadValue {
                key: "settings".into(),
                origin: Origin::Default,
                message: toml::de::Error::message(&error).to_owned(),
            })?;
        let (origins, notes) = (self.origins, self.notes);
        Ok(Loaded {
            settings,
            origins,
            notes,
        })
    }

    fn is_known(&self, key: &str) -> bool {
        self.known.iter().any(|known| known == key)
    }

    fn is_section(&self, key: &str) -> bool {
        matches!(self.defaults.get(key), Some(Value::Table(_)))
    }
}

/// The variable of a setting.
fn variable(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.to_ascii_uppercase().replace('.', "_"))
}

/// The default settings as TOML.
#[expect(clippy::expect_used, reason = "a constant, and a test serialises it")]
pub(super) fn defaults() -> Table {
    Table::try_from(Settings::default()).expect("the default settings are TOML")
}

/// Dotted names of all settings of a table, those outside sections first.
pub(super) fn keys(table: &Table) -> Vec<String> {
    let (mut keys, mut in_sections) = (Vec::new(), Vec::new());
    for (name, value) in table {
        match value {
            Value::Table(section) => {
                in_sections.extend(section.keys().map(|key| format!("{name}.{key}")));
            }
            _ => keys.push(name.clone()),
        }
    }
    keys.append(&mut in_sections);
    keys
}

/// The value of a dotted name.
pub(super) fn get<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, name)) => table.get(section)?.as_table()?.get(name),
        None => table.get(key),
    }
}

fn put(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        Some((section, name)) => {
            let section = table
                .entry(section)
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(section) = section {
                section.insert(name.to_owned(), value);
            }
        }
        None => {
            table.insert(key.to_owned(), value);
        }
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
