//! One process of a fleet, and the supervisor that it would have anywhere.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use dueline_tests_end_to_end::{Process, pause, program};
use tokio::time::Instant;

use crate::{Site, site::VARIABLES};

/// The first line of whoever listens.
const LISTENING: &str = "listening on ";
/// What every process logs, when it is set.
const LOG_VARIABLE: &str = "DUELINE_FLEET_LOG";
/// Below the ports that systems give to outgoing connections: who restarts finds its port still free.
const PORTS: std::ops::Range<u16> = 17_000..32_000;
/// How long a supervisor tries to bring a process back: longer than any outage that a test makes.
const COME_BACK_MAX: Duration = Duration::from_secs(60);
/// Between two tries.
const COME_BACK_EVERY: Duration = Duration::from_millis(200);

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Takes tasks.
    Frontend,
    /// Hands on what is due.
    Consumer,
    /// Keeps what workers report.
    StatusController,
    /// Hands tasks to executors.
    Controller,
    /// Runs them.
    Executor,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::Frontend,
        Self::Consumer,
        Self::StatusController,
        Self::Controller,
        Self::Executor,
    ];

    /// In names of programs and processes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Consumer => "consumer",
            Self::StatusController => "status-controller",
            Self::Controller => "controller",
            Self::Executor => "executor",
        }
    }

    /// The program.
    pub fn program(self) -> String {
        format!("dueline-{}", self.name())
    }

    const fn listens(self) -> bool {
        !matches!(self, Self::Executor)
    }
}

/// A process that can be killed and started again at the same address.
pub struct Member {
    role: Role,
    program: PathBuf,
    name: String,
    args: Vec<String>,
    url: String,
    process: Process,
    /// Starts that came to nothing, because an engine was away.
    failed_starts: usize,
    // After the process, which writes into its folder.
    site: Arc<Site>,
}

impl Member {
    /// Starts a process and waits until it listens, if it does.
    pub async fn start(site: &Arc<Site>, role: Role, name: &str, args: &[String]) -> Self {
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
            process: Process::start_with(site.place(), name, &program, &all, &VARIABLES),
            role,
            program,
            name: name.to_owned(),
            args: all,
            url: format!("http://{address}"),
            failed_starts: 0,
            site: site.clone(),
        };
        member.come_up().await;
        member
    }

    /// What it does.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Its name among the others.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Starts that came to nothing.
    pub const fn failed_starts(&self) -> usize {
        self.failed_starts
    }

    /// Ends it as a crash would.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Asks it to stop and waits until it has.
    pub async fn stop(&mut self, bound: Duration) -> ExitStatus {
        self.process.signal("TERM");
        self.process.ended(bound).await
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self, bound: Duration) -> ExitStatus {
        self.process.ended(bound).await
    }

    /// Starts it again with the same arguments, at the same address, and again when that comes to nothing.
    pub async fn start_again(&mut self) {
        self.launch();
        self.come_up().await;
    }

    fn launch(&mut self) {
        let (place, args) = (self.site.place(), &self.args);
        self.process = Process::start_with(place, &self.name, &self.program, args, &VARIABLES);
    }

    async fn come_up(&mut self) {
        let since = Instant::now();
        while self.role.listens() && self.process.told(LISTENING).await.is_none() {
            let log = self.process.log();
            let may_pass = [
                "failed to listen",
                "cannot be reached",
                "failed to make the queues",
            ];
            assert!(
                may_pass.iter().any(|why| log.contains(why)) && since.elapsed() < COME_BACK_MAX,
                "{} did not start\n{log}",
                self.name
            );
            self.failed_starts += 1;
            pause(COME_BACK_EVERY).await;
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
