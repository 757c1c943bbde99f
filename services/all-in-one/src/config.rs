//! Settings of a process and its services.

#[cfg(feature = "network")]
use std::net::SocketAddr;
use std::{collections::BTreeSet, str::FromStr};

use dueline_backends::SinkOptions;
#[cfg(feature = "network")]
use dueline_domain::Policy;
use dueline_executor::Registry;

/// A service that a process can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Serves clients.
    Frontend,
    /// Enqueues due tasks.
    Consumer,
    /// Processes the claims and reports of workers.
    StatusController,
    /// Dispatches tasks to executors. The executors of this process belong to this role, too.
    Controller,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [
        Self::Frontend,
        Self::Consumer,
        Self::StatusController,
        Self::Controller,
    ];

    /// The name that settings use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Consumer => "consumer",
            Self::StatusController => "status-controller",
            Self::Controller => "controller",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|role| role.name()).collect();
                let text = text.escape_debug();
                format!("unknown service '{text}'; known are {}", known.join(", "))
            })
    }
}

/// Which services a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// Exactly these roles.
    pub fn of(roles: impl IntoIterator<Item = Role>) -> Self {
        Self(roles.into_iter().collect())
    }

    /// Whether the process runs this service.
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl Default for Roles {
    /// All roles.
    fn default() -> Self {
        Self::of(Role::ALL)
    }
}

/// Settings of a process that opens a store.
pub struct NodeConfig {
    /// The store, as a URI.
    pub store: String,
    /// The queue, as a URI.
    pub queue: String,
    /// Where REST and gRPC listen; `None` for embedded use without a network.
    #[cfg(feature = "network")]
    pub listen: Option<SocketAddr>,
    /// Which services the process runs.
    pub roles: Roles,
    /// Settings of the consumer.
    pub consumer: dueline_consumer::Config,
    /// Settings of the status controller.
    pub status: dueline_status_controller::Config,
    /// Settings of the controller.
    pub controller: dueline_controller::Config,
    /// Executors of this process.
    pub workers: Vec<WorkerConfig>,
    /// Whether a new task may be dispatched to a waiting worker of this process without passing through the queue.
    pub dispatch: bool,
    /// What the sinks of jobs may reach.
    pub sinks: SinkOptions,
    /// The policy of jobs, as far as they set none.
    #[cfg(feature = "network")]
    pub default_policy: Policy,
    /// The response of `/metrics`.
    #[cfg(feature = "network")]
    pub metrics: Option<dueline_frontend::MetricsText>,
}

impl NodeConfig {
    /// All services on one store, without a network and without workers.
    pub fn embedded(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            queue: "local:".into(),
            #[cfg(feature = "network")]
            listen: None,
            roles: Roles::default(),
            consumer: dueline_consumer::Config::default(),
            status: dueline_status_controller::Config::default(),
            controller: dueline_controller::Config::default(),
            workers: Vec::new(),
            dispatch: true,
            sinks: SinkOptions::default(),
            #[cfg(feature = "network")]
            default_policy: Policy::default(),
            #[cfg(feature = "network")]
            metrics: None,
        }
    }
}

/// An executor and its handlers.
pub struct WorkerConfig {
    /// Its settings.
    pub executor: dueline_executor::Config,
    /// Its handlers.
    pub registry: Registry,
}
