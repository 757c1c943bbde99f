//! The processes of a deployment.

use std::{process::ExitStatus, time::Duration};

use crate::{Client, Place, Process, pause, wait_until};

/// The first line of whoever listens.
const LISTENING: &str = "listening on ";
/// Starts at the same address before giving up: for a moment another socket may sit on a port that was just left.
const STARTS_MAX: u32 = 20;
/// A worker registers in a fraction of a second.
const REGISTER_MAX: Duration = Duration::from_secs(20);

/// `dueline serve` on the store of a place.
pub struct Server<'a> {
    place: &'a Place,
    args: Vec<String>,
    process: Process,
    url: String,
    /// A client of it.
    pub api: Client,
}

impl<'a> Server<'a> {
    /// Starts a server at a free port and waits until it listens.
    pub async fn start(place: &'a Place, args: &[&str]) -> Self {
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (process, url) = serve(place, "127.0.0.1:0", &args).await;
        Self {
            place,
            args,
            process,
            api: Client::new(&url),
            url,
        }
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process.
    pub const fn process(&self) -> &Process {
        &self.process
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

    /// Starts it again at the same address and on the same file, with the same arguments.
    pub async fn start_again(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        (self.process, _) = serve(self.place, &address, &self.args).await;
    }

    /// Starts it again, with other arguments.
    pub async fn start_again_with(&mut self, args: &[&str]) {
        self.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.start_again().await;
    }
}

async fn serve(place: &Place, address: &str, args: &[String]) -> (Process, String) {
    let store = place.store().display().to_string();
    let mut all = vec!["serve", "--data", &store, "--listen", address];
    all.extend(args.iter().map(String::as_str));
    start(place, "server", &all).await
}

async fn start(place: &Place, name: &str, args: &[&str]) -> (Process, String) {
    let mut starts = 0;
    loop {
        let mut process = Process::dueline(place, name, args);
        if let Some(url) = process.told(LISTENING).await {
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

/// `dueline worker run`.
pub struct Worker<'a> {
    place: &'a Place,
    name: String,
    args: Vec<String>,
    /// The process.
    pub process: Process,
    /// Its id, once it is known.
    pub id: String,
}

impl<'a> Worker<'a> {
    /// Starts a worker of the server or controller at `url` and does not wait for it.
    pub fn launch(place: &'a Place, url: &str, name: &str, args: &[&str]) -> Self {
        let first = ["worker", "run", "--server", url, "--worker-name", name];
        let args: Vec<_> = first
            .iter()
            .chain(args)
            .map(|arg| (*arg).to_owned())
            .collect();
        Self {
            place,
            process: Process::dueline(place, name, &args),
            name: name.to_owned(),
            args,
            id: String::new(),
        }
    }

    /// Starts a worker of the server or controller at `url` and waits until the server behind `api` knows it.
    pub async fn start(
        place: &'a Place,
        api: &Client,
        url: &str,
        name: &str,
        args: &[&str],
    ) -> Self {
        let known = api.workers(name).await;
        let mut worker = Self::launch(place, url, name, args);
        worker.id = worker.registered(api, &known).await;
        worker
    }

    async fn registered(&self, api: &Client, known: &[String]) -> String {
        wait_until("a worker to register", REGISTER_MAX, async || {
            let mut ids = api.workers(&self.name).await;
            ids.retain(|id| !known.contains(id));
            ids.pop().ok_or_else(|| self.process.log())
        })
        .await
    }

    /// Ends it as a crash would. Commands that it runs go on.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Starts it again with the same arguments and does not wait for it.
    pub fn launch_again(&mut self) {
        self.process = Process::dueline(self.place, &self.name, &self.args);
        self.id.clear();
    }

    /// Starts it again with the same arguments and waits until the server behind `api` knows it.
    pub async fn start_again(&mut self, api: &Client) {
        let known = api.workers(&self.name).await;
        self.launch_again();
        self.id = self.registered(api, &known).await;
    }
}

/// `dueline controller` without an executor of its own.
pub struct Controller {
    process: Process,
    url: String,
}

impl Controller {
    /// Starts a controller of the server at `url` at a free port and waits until it listens.
    pub async fn start(place: &Place, url: &str) -> Self {
        let args = [
            "controller",
            "--server",
            url,
            "--listen",
            "127.0.0.1:0",
            "--no-worker",
        ];
        let (process, url) = start(place, "controller", &args).await;
        Self { process, url }
    }

    /// Where executors find it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends it as a crash would.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }
}
