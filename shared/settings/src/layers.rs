//! Merges flags, environment, file and defaults, and records the origin of each value.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use toml::{Table, Value};

use super::{
    ConfigProblem, Settings,
    nearest::{nearest, nearest_key},
};

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The default.
    Default,
    /// A configuration file that a flag or the environment names.
    File(PathBuf),
    /// A configuration file in the working directory that no flag or variable names. It may be part of a checkout or an
    /// archive, so it cannot open the server to the network.
    FoundFile(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::FoundFile(path) => write!(f, "file {} of the working directory", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Why the configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("configuration file {path} is not TOML: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        message: String,
    },
    /// The setting does not exist.
    #[error("unknown setting '{key}' ({origin}){}", hint(nearest.as_deref()))]
    UnknownKey {
        /// The name that was given.
        key: String,
        /// Where it was given.
        origin: SettingOrigin,
        /// The nearest setting.
        nearest: Option<String>,
    },
    /// The value is not valid for the setting.
    #[error("setting '{key}' ({origin}): {message}")]
    BadValue {
        /// The setting.
        key: String,
        /// Where it was given.
        origin: SettingOrigin,
        /// What is wrong.
        message: String,
    },
    /// Values that are out of range or contradict each other.
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

/// The sources of settings, before they are merged.
#[derive(Clone, Debug, Default)]
pub struct SettingsLayers {
    /// The file.
    pub file: Option<ConfigFile>,
    /// The environment; only variables `DUELINE_*` are used.
    pub env: BTreeMap<String, String>,
    /// Flag, setting and value, in the order given; a later one overrides an earlier one.
    pub flags: Vec<(String, String, String)>,
}

/// The text of a configuration file.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
    /// Whether a flag or the environment names the file; otherwise it is the one in the working directory.
    pub named: bool,
}

/// The effective settings and their origins.
#[derive(Clone, Debug)]
pub struct LoadedSettings {
    /// The settings.
    pub settings: Settings,
    /// The origin of each setting, by its dotted name.
    pub origins: BTreeMap<String, SettingOrigin>,
    /// Notes for the log, such as environment variables that set nothing.
    pub notes: Vec<String>,
}

/// Prefix of environment variables. The rest names the setting: `DUELINE_SERVER_LISTEN` is `server.listen`.
const ENV_PREFIX: &str = "DUELINE_";
/// Variables that are not settings: those of clients, and the path of the file.
const ENV_OTHERS: [&str; 4] = [
    "DUELINE_CALLER",
    "DUELINE_CONFIG",
    "DUELINE_REQUEST_TIMEOUT",
    "DUELINE_SERVER",
];

impl SettingsLayers {
    /// Merges the layers. Relations are not checked yet, see [`LoadedSettings::checked`].
    pub fn load(self) -> Result<LoadedSettings, ConfigError> {
        let mut merge = SettingsMerge::new();
        if let Some(file) = self.file {
            merge.file(file)?;
        }
        merge.env(&self.env)?;
        for (flag, key, text) in self.flags {
            merge.set_text(&key, &text, SettingOrigin::Flag(flag))?;
        }
        merge.finish()
    }
}

impl LoadedSettings {
    /// Returns the settings unless [`Settings::check`] finds a problem, or a file that is not named opens the server to
    /// the network.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let mut problems = self.settings.check().err().unwrap_or_default();
        problems.extend(self.network_opened_by_a_found_file());
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(ConfigError::Problems(problems))
        }
    }

    /// The problem that other machines can reach the server because of a file that is only in the working directory.
    fn network_opened_by_a_found_file(&self) -> Option<ConfigProblem> {
        if self.settings.server.listen.ip().is_loopback() {
            return None;
        }
        let opens = ["server.listen", "server.allow_remote"];
        let (key, path) = opens
            .into_iter()
            .find_map(|key| match self.origins.get(key) {
                Some(SettingOrigin::FoundFile(path)) => Some((key, path.display())),
                _ => None,
            })?;
        Some(ConfigProblem {
            settings: vec![
                format!("server.listen = \"{}\"", self.settings.server.listen),
                format!("{key} (file {path})"),
            ],
            what: "a file that is only in the working directory cannot open the server to other \
                 machines"
                .into(),
            fix: format!(
                "name the file with --config {path} or DUELINE_CONFIG, or set {key} by flag or environment"
            ),
        })
    }
}

/// The state of a merge.
struct SettingsMerge {
    defaults: Table,
    /// Dotted names of all settings.
    known: Vec<String>,
    effective: Table,
    origins: BTreeMap<String, SettingOrigin>,
    notes: Vec<String>,
}

impl SettingsMerge {
    fn new() -> Self {
        let defaults = defaults();
        let known = keys(&defaults);
        Self {
            effective: defaults.clone(),
            origins: known
                .iter()
                .map(|key| (key.clone(), SettingOrigin::Default))
                .collect(),
            notes: Vec::new(),
            defaults,
            known,
        }
    }

    fn file(&mut self, file: ConfigFile) -> Result<(), ConfigError> {
        let ConfigFile { path, text, named } = file;
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| ConfigError::Syntax {
                path: path.clone(),
                message: error.to_string().trim_end().to_owned(),
            })?;
        let origin = if named {
            SettingOrigin::File(path)
        } else {
            SettingOrigin::FoundFile(path)
        };
        self.table("", table, &origin)
    }

    /// Sets all values of a table of the file.
    fn table(
        &mut self,
        prefix: &str,
        table: Table,
        origin: &SettingOrigin,
    ) -> Result<(), ConfigError> {
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
            let origin = SettingOrigin::Env(name.clone());
            if let Some(key) = by_variable.get(name) {
                self.set_text(key, text, origin)?;
                continue;
            }
            // A typing error is refused. A variable unlike any setting is only noted, because orchestrators set
            // variables such as DUELINE_PORT_7070_TCP_ADDR for a service of this name.
            let known = by_variable.keys().map(String::as_str);
            if let Some(nearest) = nearest(name, known) {
                return Err(ConfigError::UnknownKey {
                    key: name.clone(),
                    origin: SettingOrigin::Env(name.clone()),
                    nearest: Some(nearest.to_owned()),
                });
            }
            self.notes
                .push(format!("environment variable {name} sets nothing"));
        }
        Ok(())
    }

    /// Sets a text from a flag or a variable, parsed as the type of the default.
    fn set_text(
        &mut self,
        key: &str,
        text: &str,
        origin: SettingOrigin,
    ) -> Result<(), ConfigError> {
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

    fn set(&mut self, key: &str, value: Value, origin: SettingOrigin) -> Result<(), ConfigError> {
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
        // Checked alone on top of the defaults, so that an error belongs to this setting.
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

    fn finish(self) -> Result<LoadedSettings, ConfigError> {
        let settings = self
            .effective
            .try_into()
            .map_err(|error| ConfigError::BadValue {
                key: "settings".into(),
                origin: SettingOrigin::Default,
                message: toml::de::Error::message(&error).to_owned(),
            })?;
        let (origins, notes) = (self.origins, self.notes);
        Ok(LoadedSettings {
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

/// The environment variable of a setting.
fn variable(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.to_ascii_uppercase().replace('.', "_"))
}

/// The default settings as TOML.
#[expect(clippy::expect_used, reason = "a constant, and a test serialises it")]
pub(super) fn defaults() -> Table {
    Table::try_from(Settings::default()).expect("the default settings are TOML")
}

/// Dotted names of all settings of a table. Settings outside sections come first.
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

/// The value of a setting by its dotted name.
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
