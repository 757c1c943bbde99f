//! What a process is made of.

use std::{collections::BTreeSet, net::SocketAddr, str::FromStr};

use dueline_domain::Policy;
use dueline_executor::Registry;

/// A service that a process can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Takes tasks and answers questions.
    Frontend,
    /// Finds what is due and hands it on.
    Consumer,
    /// Keeps what workers report.
    StatusController,
    /// Hands tasks to executors, and runs those of this process.
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

    /// The name in settings.
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
                format!("unknown service '{text}'; known are {}", known.join(", "))
            })
    }
}

/// Which services a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// These and no others.
    pub fn of(roles: impl IntoIterator<Item = Role>) -> Self {
        Self(roles.into_iter().collect())
    }

    /// Whether a service runs here.
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl Default for Roles {
    /// All of them.
    fn default() -> Self {
        Self::of(Role::ALL)
    }
}

/// A process on a store of its own.
pub struct NodeConfig {
    /// Where tasks are kept, as a URI.
    pub store: String,
    /// What carries tasks, as a URI.
    pub queue: String,
    /// Where REST and gRPC listen; `None` for embedded use without a network.
    pub listen: Option<SocketAddr>,
    /// Which services run here.
    pub roles: Roles,
    /// Settings of the consumer.
    pub consumer: dueline_consumer::Config,
    /// Settings of the status controller.
    pub status: dueline_status_controller::Config,
    /// Settings of the controller.
    pub controller: dueline_controller::Config,
    /// Executors of this process.
    pub workers: Vec<WorkerConfig>,
    /// Whether a new task may go straight to a worker of this process that waits for one, past the queue.
    pub dispatch: bool,
    /// The timeouts of a job that names none.
    pub default_policy: Policy,
    /// Text of the metrics, for `/metrics`.
    pub metrics: Option<dueline_frontend::MetricsText>,
}

impl NodeConfig {
    /// Everything on one store, without a network and without workers.
    pub fn embedded(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            queue: "local:".into(),
            listen: None,
            roles: Roles::default(),
            consumer: dueline_consumer::Config::default(),
            status: dueline_status_controller::Config::default(),
            controller: dueline_controller::Config::default(),
            workers: Vec::new(),
            dispatch: true,
            default_policy: Policy::default(),
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
