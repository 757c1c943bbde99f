//! `dueline worker`.

use clap::Subcommand;
use comfy_table::Cell;
use dueline_api::v1::{WorkerList, WorkerView};

use crate::{
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
    /// List the workers that are registered
    List(List),
}

/// Lists workers.
#[derive(Debug, clap::Args)]
pub struct List {}

impl Command {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        match self {
            Self::Run(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
        }
    }
}

impl List {
    async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let answer = context.client()?.get(&["workers"], &[]).await?;
        context.output.show(&answer, context.now(), |style| {
            Ok(render(style, &answer.read::<WorkerList>()?.workers))
        })?;
        Ok(Exit::Ok)
    }
}

const FIT: Fit = Fit {
    texts: &["HANDLERS", "JOBS"],
    drops: &["KIND", "STARTED", "CONCURRENCY", "JOBS", "HANDLERS"],
    cuts: true,
};

fn render(style: &TableStyle, workers: &[WorkerView]) -> String {
    if workers.is_empty() {
        return "no workers are registered".into();
    }
    let mut table = style.table(&[
        "WORKER",
        "KIND",
        "CONCURRENCY",
        "HANDLERS",
        "JOBS",
        "STARTED",
        "SEEN",
    ]);
    for worker in workers {
        let jobs: Vec<&str> = worker.jobs.iter().map(|job| job.as_str()).collect();
        table.add_row([
            Cell::new(clean(worker.id.as_str())),
            Cell::new(clean(&worker.kind)),
            Cell::new(worker.concurrency),
            Cell::new(short(&worker.handlers.join(","), 40)),
            Cell::new(short(&jobs.join(","), 40)),
            Cell::new(style.when(worker.started_at)),
            Cell::new(style.when(worker.seen_at)),
        ]);
    }
    output::list(&table, FIT)
}
