//! Everything that can be set, with its default.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// All settings of a server or a worker. `config.default.toml` explains each one.
///
/// ```
/// use dueline_runtime::Settings;
/// assert!(Settings::default().check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where tasks are kept, as a URI; empty stands for the SQLite file `server.data`.
    pub store: String,
    /// What carries tasks to workers, as a URI.
    pub queue: String,
    /// What an accepted write of the SQLite file `server.data` survives.
    pub durability: Durability,
    /// The address and the data of this server.
    pub server: ServerSettings,
    /// How often the consumer looks.
    pub scheduler: SchedulerSettings,
    /// The executor in this process.
    pub worker: WorkerSettings,
    /// What a job gets that names none of its own.
    pub defaults: DefaultsSettings,
    /// How this process ends.
    pub shutdown: ShutdownSettings,
    /// What this process writes to its standard error.
    pub log: LogSettings,
}

/// What an accepted write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A loss of power.
    #[default]
    Full,
    /// A crash of the process, but not always a loss of power. Faster.
    Normal,
}

impl Durability {
    /// The name in settings and URIs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The address and the data of this server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Whether `listen` may be reached from other machines although nobody has to log in.
    pub allow_remote: bool,
    /// The SQLite file.
    pub data: PathBuf,
}

/// How often the consumer looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    /// Longest time between two looks for due tasks.
    pub poll_period_ms: u64,
}

/// The executor in this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// The name in lists; empty stands for the name of the host.
    pub name: String,
    /// Most weight that runs at once.
    pub concurrency: u32,
    /// More work is fetched as soon as less than this runs; 0 fetches whenever there is room.
    pub concurrency_min: u32,
    /// Kinds of built-in handlers that run here.
    pub handlers: Vec<String>,
    /// Whether the `http` handler may call private and loopback addresses.
    pub http_allow_private: bool,
    /// Time between two heartbeats of a running task.
    pub heartbeat_interval_ms: u64,
    /// Time that a command has between being asked to end and being killed.
    pub kill_grace_ms: u64,
}

/// What a job gets that names none of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DefaultsSettings {
    /// After this an enqueued task is handed on again; at least 100.
    pub enqueue_timeout_ms: u64,
    /// After this a claimed task that was not begun is handed on again; at least 100.
    pub claim_timeout_ms: u64,
    /// A run is lost when nothing was heard of its worker for this long; at least 100.
    pub heartbeat_timeout_ms: u64,
}

/// How this process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownSettings {
    /// Time that running tasks have to end by themselves.
    pub grace_ms: u64,
}

/// What this process writes to its standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// The least level, or directives such as `info,dueline_consumer=debug`.
    pub level: String,
    /// For people or for programs.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Built-in handlers there are.
pub(super) const HANDLERS: [&str; 3] = ["exec", "http", "noop"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            store: String::new(),
            queue: "local:".into(),
            durability: Durability::default(),
            server: ServerSettings::default(),
            scheduler: SchedulerSettings::default(),
            worker: WorkerSettings::default(),
            defaults: DefaultsSettings::default(),
            shutdown: ShutdownSettings::default(),
            log: LogSettings::default(),
        }
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7070),
            allow_remote: false,
            data: "dueline.db".into(),
        }
    }
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            poll_period_ms: 1_000,
        }
    }
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            concurrency: 16,
            concurrency_min: 0,
            handlers: HANDLERS.map(String::from).to_vec(),
            http_allow_private: false,
            heartbeat_interval_ms: 2_000,
            kill_grace_ms: 5_000,
        }
    }
}

impl Default for DefaultsSettings {
    fn default() -> Self {
        Self {
            enqueue_timeout_ms: 60_000,
            claim_timeout_ms: 10_000,
            heartbeat_timeout_ms: 8_000,
        }
    }
}

impl Default for ShutdownSettings {
    fn default() -> Self {
        Self { grace_ms: 10_000 }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            level: "info".into(),
            format: LogFormat::default(),
        }
    }
}

impl Settings {
    /// The URI of the store: `store`, or else the SQLite file `server.data` with `durability`.
    pub fn store_uri(&self) -> String {
        if self.store.is_empty() {
            sqlite_uri(&self.server.data, self.durability)
        } else {
            self.store.clone()
        }
    }

    /// The policy of a job that names none of its own.
    pub fn policy(&self) -> dueline_domain::Policy {
        let heartbeat_timeout = Duration::from_millis(self.defaults.heartbeat_timeout_ms);
        dueline_domain::Policy {
            enqueue_timeout: Duration::from_millis(self.defaults.enqueue_timeout_ms),
            claim_timeout: Duration::from_millis(self.defaults.claim_timeout_ms),
            heartbeat_timeout,
            heartbeat_increment: heartbeat_timeout,
            ..dueline_domain::Policy::default()
        }
    }
}

impl SchedulerSettings {
    /// Longest time between two looks for due tasks.
    pub const fn poll_period(&self) -> Duration {
        Duration::from_millis(self.poll_period_ms)
    }
}

impl WorkerSettings {
    /// Below what weight more work is fetched; `None` fetches whenever there is room.
    pub const fn concurrency_min(&self) -> Option<u32> {
        match self.concurrency_min {
            0 => None,
            min => Some(min),
        }
    }

    /// Time between two heartbeats of a running task.
    pub const fn heartbeat_interval(&self) -> Duration {
        Duration::from_millis(self.heartbeat_interval_ms)
    }

    /// Time that a command has between being asked to end and being killed.
    pub const fn kill_grace(&self) -> Duration {
        Duration::from_millis(self.kill_grace_ms)
    }
}

impl ShutdownSettings {
    /// Time that running tasks have to end by themselves.
    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }
}

/// `sqlite:///absolute/path` or `sqlite:relative/path`. The path stands as it is; a `?` in it would end it, which
/// [`Settings::check`] refuses.
fn sqlite_uri(path: &Path, durability: Durability) -> String {
    let slashes = if path.is_absolute() { "//" } else { "" };
    format!("sqlite:{slashes}{}?durability={durability}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_file_becomes_a_store_uri() {
        let mut settings = Settings::default();
        assert_eq!(settings.store_uri(), "sqlite:dueline.db?durability=full");
        settings.server.data = "/srv/due line.db".into();
        settings.durability = Durability::Normal;
        assert_eq!(
            settings.store_uri(),
            "sqlite:///srv/due line.db?durability=normal"
        );
        settings.store = "sqlite::memory:".into();
        assert_eq!(settings.store_uri(), "sqlite::memory:");
    }

    #[test]
    fn the_default_policy_is_the_domains() {
        assert_eq!(
            Settings::default().policy(),
            dueline_domain::Policy::default()
        );
    }
}
