//! The processes of a deployment.

use std::{process::ExitStatus, time::Duration};

use crate::{ChildProcess, RestClient, TestFolder, pause, wait_until};

/// The first line that a listening process prints, before its URL.
const LISTENING: &str = "listening on ";
/// Tries to start at the same address; another socket may briefly hold a port that was just released.
const STARTS_MAX: u32 = 20;
/// A worker registers in a fraction of a second.
const REGISTER_MAX: Duration = Duration::from_secs(20);

/// A `dueline serve` process on the database of a test folder.
pub struct ServerProcess<'a> {
    folder: &'a TestFolder,
    args: Vec<String>,
    process: ChildProcess,
    url: String,
    /// A REST client of the server.
    pub api: RestClient,
}

impl<'a> ServerProcess<'a> {
    /// Starts a server on a free port and waits until it listens.
    pub async fn start(folder: &'a TestFolder, args: &[&str]) -> Self {
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (process, url) = serve(folder, "127.0.0.1:0", &args).await;
        Self {
            folder,
            args,
            process,
            api: RestClient::new(&url),
            url,
        }
    }

    /// The URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process.
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Kills the process, like a crash.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Sends `SIGTERM` and waits until the server has exited.
    pub async fn stop(&mut self, bound: Duration) -> ExitStatus {
        self.process.signal("TERM");
        self.process.exited(bound).await
    }

    /// Waits until the server has exited by itself.
    pub async fn exited(&mut self, bound: Duration) -> ExitStatus {
        self.process.exited(bound).await
    }

    /// Starts the server again on the same address and file, with the same arguments.
    pub async fn start_again(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        (self.process, _) = serve(self.folder, &address, &self.args).await;
    }

    /// Starts the server again on the same address and file, with other arguments.
    pub async fn start_again_with(&mut self, args: &[&str]) {
        self.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.start_again().await;
    }
}

async fn serve(folder: &TestFolder, address: &str, args: &[String]) -> (ChildProcess, String) {
    let store = folder.store().display().to_string();
    let mut all = vec!["serve", "--data", &store, "--listen", address];
    all.extend(args.iter().map(String::as_str));
    start(folder, "server", &all).await
}

async fn start(folder: &TestFolder, name: &str, args: &[&str]) -> (ChildProcess, String) {
    let mut starts = 0;
    loop {
        let mut process = ChildProcess::dueline(folder, name, args);
        if let Some(url) = process.line_after(LISTENING).await {
            return (process, url);
        }
        starts += 1;
        let log = process.log();
        assert!(
            log.contains("failed to listen") && starts < STARTS_MAX,
            "{name} did not start\n{log}"
        );
        pause(Duration::from_millis(50)).await;
    }
}

/// A `dueline worker run` process.
pub struct WorkerProcess<'a> {
    folder: &'a TestFolder,
    name: String,
    args: Vec<String>,
    /// The process.
    pub process: ChildProcess,
    /// The worker id; empty until it is known.
    pub id: String,
}

impl<'a> WorkerProcess<'a> {
    /// Starts a worker of the server or controller at `url` without waiting for it.
    pub fn launch(folder: &'a TestFolder, url: &str, name: &str, args: &[&str]) -> Self {
        let first = ["worker", "run", "--server", url, "--worker-name", name];
        let args: Vec<_> = first
            .iter()
            .chain(args)
            .map(|arg| (*arg).to_owned())
            .collect();
        Self {
            folder,
            process: ChildProcess::dueline(folder, name, &args),
            name: name.to_owned(),
            args,
            id: String::new(),
        }
    }

    /// Starts a worker of the server or controller at `url` and waits until it is registered at `api`.
    pub async fn start(
        folder: &'a TestFolder,
        api: &RestClient,
        url: &str,
        name: &str,
        args: &[&str],
    ) -> Self {
        let registered_before = api.workers(name).await;
        let mut worker = Self::launch(folder, url, name, args);
        worker.id = worker.registered(api, &registered_before).await;
        worker
    }

    async fn registered(&self, api: &RestClient, registered_before: &[String]) -> String {
        wait_until("a worker to register", REGISTER_MAX, async || {
            let mut ids = api.workers(&self.name).await;
            ids.retain(|id| !registered_before.contains(id));
            ids.pop().ok_or_else(|| self.process.log())
        })
        .await
    }

    /// Kills the worker, like a crash. The commands that it started continue.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Starts the worker again with the same arguments without waiting for it.
    pub fn launch_again(&mut self) {
        self.process = ChildProcess::dueline(self.folder, &self.name, &self.args);
        self.id.clear();
    }

    /// Starts the worker again with the same arguments and waits until it is registered at `api`.
    pub async fn start_again(&mut self, api: &RestClient) {
        let registered_before = api.workers(&self.name).await;
        self.launch_again();
        self.id = self.registered(api, &registered_before).await;
    }
}

/// A `dueline controller` process without an executor.
pub struct ControllerProcess {
    process: ChildProcess,
    url: String,
}

impl ControllerProcess {
    /// Starts a controller of the server at `url` on a free port and waits until it listens.
    pub async fn start(folder: &TestFolder, url: &str) -> Self {
        let args = [
            "controller",
            "--server",
            url,
            "--listen",
            "127.0.0.1:0",
            "--no-worker",
        ];
        let (process, url) = start(folder, "controller", &args).await;
        Self { process, url }
    }

    /// The URL for its executors.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the process, like a crash.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }
}
