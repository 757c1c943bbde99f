//! `dueline worker`.

use std::time::Duration;

use clap::Subcommand;
use comfy_table::Cell;
use dueline_api::v1::{AliveView, WorkerList, WorkerRegistration, WorkerView};
use dueline_domain::WorkerId;
use dueline_runtime::{ServiceError, incarnation};
use reqwest::Method;

use crate::{
    client::RequestBody,
    commands::process::until_stopped,
    context::Context,
    exit::{CliError, Exit},
    fit::Fit,
    output::{self, TableStyle},
    sanitize::{clean, short},
};

/// The commands of `dueline worker`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run tasks in this process for a remote server
    Run(Box<super::worker_run::Run>),
    /// List the workers that are registered, or other processes
    List(List),
    /// Register a process of any kind until this command is stopped
    Register(Register),
}

/// Lists workers.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Kind of process: executor, controller, consumer, frontend, status-controller, or all
    #[arg(long, value_name = "KIND", default_value = "executor")]
    kind: String,
}

/// Registers a process.
#[derive(Debug, clap::Args)]
pub struct Register {
    /// Name of the process
    name: String,

    /// Kind of process: controller, consumer, frontend or status-controller; executors register by themselves
    #[arg(long, value_name = "KIND")]
    kind: String,

    /// What it says about itself; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = entry)]
    metadata: Vec<(String, String)>,
}

fn entry(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Command {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        match self {
            Self::Run(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Register(command) => command.run(context).await,
        }
    }
}

impl List {
    async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let query = [("kind", self.kind)];
        let answer = context.client()?.get(&["workers"], &query).await?;
        context.output.show(&answer, context.now(), |style| {
            Ok(render(style, &answer.read::<WorkerList>()?.workers))
        })?;
        Ok(Exit::Ok)
    }
}

impl Register {
    async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let client = context.client()?;
        let worker = WorkerId::new(&self.name, incarnation());
        let worker = worker.map_err(|error| CliError::invalid(error.to_string()))?;
        let registration = WorkerRegistration {
            worker: worker.clone(),
            jobs: Vec::new(),
            handlers: Vec::new(),
            concurrency: None,
            kind: Some(self.kind),
            metadata: self.metadata.into_iter().collect(),
        };
        let register = async || {
            let body = RequestBody::json(&registration)?;
            let answer = client.send(Method::POST, &["workers"], body).await?;
            answer.read::<AliveView>()
        };
        // What is wrong with it is said at once. Later the server may be away for a while.
        let mut every = Duration::from_millis(register().await?.interval_ms);
        context.output.line(&format!("registered as {worker}"))?;
        let renew = async {
            loop {
                tokio::time::sleep(every.max(Duration::from_millis(100))).await;
                match register().await {
                    Ok(alive) => every = Duration::from_millis(alive.interval_ms),
                    Err(error) if error.exit() == Exit::Unavailable => {}
                    Err(error) => {
                        break ServiceError {
                            task: "registration",
                            what: error.to_string(),
                        };
                    }
                }
            }
        };
        let ended = until_stopped(renew, &[]).await;
        let path = ["workers", worker.as_str()];
        let left = client.send(Method::DELETE, &path, RequestBody::Empty).await;
        ended?;
        left.map(|_| Exit::Ok)
    }
}

const FIT: Fit = Fit {
    texts: &["HANDLERS", "JOBS"],
    drops: &[
        "METADATA",
        "KIND",
        "STARTED",
        "CONCURRENCY",
        "JOBS",
        "HANDLERS",
    ],
    cuts: true,
};

fn render(style: &TableStyle, workers: &[WorkerView]) -> String {
    if workers.is_empty() {
        return "no workers are registered".into();
    }
    let says = workers.iter().any(|worker| !worker.metadata.is_empty());
    let mut header = vec![
        "WORKER",
        "KIND",
        "CONCURRENCY",
        "HANDLERS",
        "JOBS",
        "STARTED",
        "SEEN",
    ];
    if says {
        header.push("METADATA");
    }
    let mut table = style.table(&header);
    for worker in workers {
        let jobs: Vec<&str> = worker.jobs.iter().map(|job| job.as_str()).collect();
        let mut cells = vec![
            Cell::new(clean(worker.id.as_str())),
            Cell::new(clean(&worker.kind)),
            Cell::new(worker.concurrency),
            Cell::new(short(&worker.handlers.join(","), 40)),
            Cell::new(short(&jobs.join(","), 40)),
            Cell::new(style.when(worker.started_at)),
            Cell::new(style.when(worker.seen_at)),
        ];
        if says {
            let entries = worker.metadata.iter();
            let entries: Vec<_> = entries
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            cells.push(Cell::new(short(&entries.join(","), 40)));
        }
        table.add_row(cells);
    }
    output::list(&table, FIT)
}
