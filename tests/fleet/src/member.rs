//! One process of a fleet, with a supervisor that restarts it.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use dueline_tests_end_to_end::{ChildProcess, pause, program};
use tokio::time::Instant;

use crate::FleetResources;

/// The first line that a listening process prints, before its URL.
const LISTENING: &str = "listening on ";
/// Environment variable with the log level of all processes.
const LOG_VARIABLE: &str = "DUELINE_FLEET_LOG";
/// Below the ephemeral ports, so that the port of a process is still free when it restarts.
const PORTS: std::ops::Range<u16> = 17_000..32_000;
/// How long a supervisor tries to restart a process: longer than any outage in these tests.
const RESTART_MAX: Duration = Duration::from_secs(60);
/// Pause between two tries.
const RESTART_EVERY: Duration = Duration::from_millis(200);

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetRole {
    /// Serves clients.
    Frontend,
    /// Enqueues due tasks.
    Consumer,
    /// Stores the transitions that workers cause.
    StatusController,
    /// Dispatches tasks to executors.
    Controller,
    /// Runs tasks.
    Executor,
}

impl FleetRole {
    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::Frontend,
        Self::Consumer,
        Self::StatusController,
        Self::Controller,
        Self::Executor,
    ];

    /// The role as part of program and process names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Consumer => "consumer",
            Self::StatusController => "status-controller",
            Self::Controller => "controller",
            Self::Executor => "executor",
        }
    }

    /// The name of the program.
    pub fn program(self) -> String {
        format!("dueline-{}", self.name())
    }

    const fn listens(self) -> bool {
        !matches!(self, Self::Executor)
    }
}

/// A process that can be killed and started again at the same address.
pub struct FleetMember {
    role: FleetRole,
    program: PathBuf,
    name: String,
    args: Vec<String>,
    url: String,
    process: ChildProcess,
    /// Starts that failed because an engine was unreachable.
    failed_starts: usize,
    // Dropped after the process, which writes into its folder.
    resources: Arc<FleetResources>,
}

impl FleetMember {
    /// Starts a process and waits until it listens, if its role listens.
    pub async fn start(
        resources: &Arc<FleetResources>,
        role: FleetRole,
        name: &str,
        args: &[String],
    ) -> Self {
        let program = program(&role.program());
        let address = format!("127.0.0.1:{}", free_port());
        let mut all = args.to_vec();
        if let Ok(level) = std::env::var(LOG_VARIABLE) {
            all.extend(["--log-level".to_owned(), level]);
        }
        if role.listens() {
            all.extend(["--listen".to_owned(), address.clone()]);
        }
        let mut member = Self {
            process: ChildProcess::start_with(
                resources.folder(),
                name,
                &program,
                &all,
                &resources.environment(),
            ),
            role,
            program,
            name: name.to_owned(),
            args: all,
            url: format!("http://{address}"),
            failed_starts: 0,
            resources: resources.clone(),
        };
        member.wait_until_up().await;
        member
    }

    /// The role of the process.
    pub const fn role(&self) -> FleetRole {
        self.role
    }

    /// The name of the process in its fleet.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL of the process.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process.
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Number of failed starts.
    pub const fn failed_starts(&self) -> usize {
        self.failed_starts
    }

    /// Kills the process, like a crash.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Sends `SIGTERM` and waits until the process has exited.
    pub async fn stop(&mut self, bound: Duration) -> ExitStatus {
        self.process.signal("TERM");
        self.process.exited(bound).await
    }

    /// Waits until the process has exited by itself.
    pub async fn exited(&mut self, bound: Duration) -> ExitStatus {
        self.process.exited(bound).await
    }

    /// Restarts the process with the same arguments on the same address, and tries again when a start fails.
    pub async fn start_again(&mut self) {
        self.launch();
        self.wait_until_up().await;
    }

    fn launch(&mut self) {
        let (folder, args) = (self.resources.folder(), &self.args);
        let variables = self.resources.environment();
        self.process =
            ChildProcess::start_with(folder, &self.name, &self.program, args, &variables);
    }

    async fn wait_until_up(&mut self) {
        let since = Instant::now();
        while self.role.listens() && self.process.line_after(LISTENING).await.is_none() {
            let log = self.process.log();
            let transient_errors = [
                "failed to listen",
                "cannot be reached",
                "failed to create the queues",
            ];
            assert!(
                transient_errors.iter().any(|error| log.contains(error))
                    && since.elapsed() < RESTART_MAX,
                "{} did not start\n{log}",
                self.name
            );
            self.failed_starts += 1;
            pause(RESTART_EVERY).await;
            self.launch();
        }
    }
}

fn free_port() -> u16 {
    let free = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS))).ok();
    let listener = (0..1_000).find_map(free).expect("a free port on loopback");
    listener
        .local_addr()
        .expect("a listener has an address")
        .port()
}
