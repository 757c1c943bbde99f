//! All settings with their defaults.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use dueline_telemetry::LogSettings;
use serde::{Deserialize, Serialize};

/// All settings of a server or a worker. `config.default.toml` explains each one.
///
/// ```
/// use dueline_settings::Settings;
/// assert!(Settings::default().check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// URI of the store; empty means the SQLite file `server.data`.
    pub store: String,
    /// URI of the queue.
    pub queue: String,
    /// What an accepted write to `server.data` survives.
    pub durability: Durability,
    /// The address and the data of this server.
    pub server: ServerSettings,
    /// The scans of the consumer.
    pub scheduler: SchedulerSettings,
    /// Where finished tasks may be delivered.
    pub sinks: SinkSettings,
    /// The executor in this process.
    pub worker: WorkerSettings,
    /// Timeouts of jobs without their own values.
    pub defaults: DefaultsSettings,
    /// The end of this process.
    pub shutdown: ShutdownSettings,
    /// The log lines of this process.
    pub log: LogSettings,
}

/// What an accepted write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power loss.
    #[default]
    Full,
    /// A crash of the process, but not always a power loss. Faster.
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
    /// Address of the API.
    pub listen: SocketAddr,
    /// Whether `listen` may be an address that other machines can reach, although the API has no authentication.
    pub allow_remote: bool,
    /// The SQLite file.
    pub data: PathBuf,
}

/// The scans of the consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    /// Longest time between two scans for due tasks.
    pub poll_period_ms: u64,
}

/// Where finished tasks may be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SinkSettings {
    /// The folder of the files; empty refuses sinks that are files.
    pub folder: PathBuf,
    /// Whether records may be posted to private and loopback addresses.
    pub http_allow_private: bool,
}

/// The executor in this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// The name of the worker in lists; empty means the name of the host.
    pub name: String,
    /// Greatest total weight of the tasks that run at once.
    pub concurrency: u32,
    /// The worker polls for tasks when the weight of its running tasks is below this value; 0 polls whenever there is
    /// room.
    pub concurrency_min: u32,
    /// Built-in handlers of this worker.
    pub handlers: Vec<String>,
    /// Whether the `http` handler may call private and loopback addresses.
    pub http_allow_private: bool,
    /// Time between two heartbeats of a running task.
    pub heartbeat_interval_ms: u64,
    /// Time between asking a command to end and killing it.
    pub kill_grace_ms: u64,
}

/// Timeouts of jobs without their own values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DefaultsSettings {
    /// Time after which an unclaimed enqueued task is enqueued again; at least 100.
    pub enqueue_timeout_ms: u64,
    /// Time after which a claimed task that has not started is enqueued again; at least 100.
    pub claim_timeout_ms: u64,
    /// Time without a heartbeat after which a run is lost; at least 100.
    pub heartbeat_timeout_ms: u64,
}

/// The end of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownSettings {
    /// Time that running tasks have to end before the worker abandons them.
    pub grace_ms: u64,
}

/// All built-in handlers.
pub(super) const HANDLERS: [&str; 3] = ["exec", "http", "noop"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            store: String::new(),
            queue: "local:".into(),
            durability: Durability::default(),
            server: ServerSettings::default(),
            scheduler: SchedulerSettings::default(),
            sinks: SinkSettings::default(),
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

impl Default for SinkSettings {
    fn default() -> Self {
        Self {
            folder: "dueline-sinks".into(),
            http_allow_private: false,
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

impl Settings {
    /// The URI of the store: `store`, or else the SQLite file `server.data` with `durability`.
    pub fn store_uri(&self) -> String {
        if self.store.is_empty() {
            sqlite_uri(&self.server.data, self.durability)
        } else {
            self.store.clone()
        }
    }

    /// The policy of a job without its own values.
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
    /// Longest time between two scans for due tasks.
    pub const fn poll_period(&self) -> Duration {
        Duration::from_millis(self.poll_period_ms)
    }
}

impl WorkerSettings {
    /// The weight below which the worker polls for tasks; `None` polls whenever there is room.
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

    /// Time between asking a command to end and killing it.
    pub const fn kill_grace(&self) -> Duration {
        Duration::from_millis(self.kill_grace_ms)
    }
}

impl ShutdownSettings {
    /// Time that running tasks have to end before the worker abandons them.
    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }
}

/// `sqlite:///absolute/path` or `sqlite:relative/path`. The path is not escaped. A `?` would end it, so
/// [`Settings::check`] refuses such a path.
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
        settings.store = "sqlite:other.db".into();
        assert_eq!(settings.store_uri(), "sqlite:other.db");
    }

    #[test]
    fn the_default_policy_is_that_of_the_domain() {
        assert_eq!(
            Settings::default().policy(),
            dueline_domain::Policy::default()
        );
    }
}
