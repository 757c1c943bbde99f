//! `dueline demo`.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use clap::Args;
use dueline_all_in_one::Drained;
use dueline_all_in_one::Node;
use dueline_api::{
    Call, ErrorKind, ErrorReason, Frontend,
    operation::{ListTasks, PutJob, Submit},
};
use dueline_domain::TaskId;
use dueline_ports::{Clock as _, ListQuery};
use dueline_runtime::{ServiceError, Shutdown, SystemClock, SystemRng, TaskGroup, incarnation};
use dueline_settings::Settings;
use tokio::time::Instant;

use super::{
    DeliveryReceiver, DemoKind, DemoOutcome, DemoSummary, DemoTask, FoundFiles, Verification,
    flow::DemoFlow,
    folder::WorkFolder,
    jobs, plan,
    plan::{markers, postpone},
    progress::{self, DemoProgress},
    report::DemoReport,
    verify, walk,
};
use crate::{
    commands::process::{self, StopSignals},
    context::Context,
    exit::{CliError, Exit},
    output,
    sanitize::one_line,
};

/// Most files of one demo.
const FILES_MAX: usize = 100_000;
/// Most notes that are printed. Further notes are counted.
const NOTES_PRINTED_MAX: usize = 10;
/// Tasks in one submit.
const BATCH_LEN: usize = 500;
/// Tasks in one page of a list. Each task carries its payload.
const PAGE_LEN: usize = 500;
/// How long running tasks may take to end when the demo is stopped.
const GRACE: Duration = Duration::from_secs(5);

/// The description of the demo at the end of its help.
const HELP: &str = "\
Each file becomes a task: a command computes its SHA-256, a command compresses it, or its size and hash are delivered \
over HTTP. Each seventh task is due 1 to 3 s later, each tenth fails once on purpose, and priorities differ. \
Beside them, three tasks wait for each other in a chain, and a schedule fires each second, three times. When all \
tasks are done, every result is computed again and compared. The input files are only read. Everything runs in this \
process, on a new SQLite file. With --json the last line is the summary.";

/// Processes the files of a folder in one process and verifies every result.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Demo {
    /// Folder with the files to process
    #[arg(long, value_name = "DIR")]
    input: PathBuf,

    /// Folder in which a new folder for the store and the compressed files is created; not inside the input [default:
    /// the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,

    /// Tasks that run at once [default: four times the processors, at least 8]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroU32>,

    /// Keep the store and the compressed files afterwards
    #[arg(long)]
    keep: bool,
}

/// A demo whose tasks have all ended.
struct CompletedDemo {
    tasks: Vec<DemoTask>,
    outcomes: BTreeMap<TaskId, DemoOutcome>,
    verification: Verification,
    elapsed: Duration,
}

impl Demo {
    pub(in crate::commands) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let (input, found) = self.files().await?;
        let files = found.files.len();
        print_notes(&found.notes);

        // From here on a signal stops the demo gracefully, so that its folder is removed.
        let mut signals = StopSignals::listen()?;
        let number = incarnation();
        let folder = WorkFolder::create(self.work.as_deref(), &input, number, self.keep)?;
        let prepared = process::with_settings(self.settings(&folder))?;
        let mut config = process::node(&prepared);
        config
            .workers
            .push(process::worker(&prepared.settings, true)?);
        let node = Node::start(config)
            .await
            .map_err(|error| process::start_error(&error))?;
        print_address(&node);

        let (group, shutdown) = (TaskGroup::new(), Shutdown::new());
        let failed = async {
            tokio::select! {
                biased;
                error = node.failed() => error,
                error = group.failed() => error,
            }
        };
        let tasks = run_tasks(&node, &folder, found, &group, &shutdown, context);
        let result = tokio::select! {
            biased;
            stopped = signals.received(failed) => stopped.map(|()| None),
            completed = tasks => completed.map(Some),
        };
        let executors = node.executors().to_vec();
        let stopping = stop(node, &group, &shutdown);
        let stopped = match &result {
            Ok(None) => process::stop(GRACE, &executors, stopping).await.map(drop),
            _ => stopping
                .await
                .map(drop)
                .map_err(|error| process::service_error(&error)),
        };
        let Some(demo) = result? else {
            stopped?;
            let message = "interrupted before every task was done; nothing was verified";
            return Err(CliError::new(
                ErrorKind::Deadline,
                ErrorReason::Interrupted,
                message,
            ));
        };
        stopped?;
        if self.keep {
            print_kept(&folder);
        }
        let summary = DemoSummary::new(files, demo.tasks.len(), &demo.verification, demo.elapsed);
        let report = DemoReport {
            input: &input,
            tasks: &demo.tasks,
            outcomes: &demo.outcomes,
            verification: &demo.verification,
            summary: &summary,
            slots: prepared.settings.worker.concurrency,
        };
        if context.output.is_json() {
            report.print_mismatches();
            context.output.verbatim(&summary.to_json())?;
        } else {
            let style = context.output.style(context.now());
            context.output.tables(&report.render(&style))?;
        }
        Ok(summary.exit())
    }

    /// The canonical path of the input folder, and its files.
    async fn files(&self) -> Result<(PathBuf, FoundFiles), CliError> {
        let input = self.input.clone();
        let found = blocking(move || {
            let input = input.canonicalize()?;
            let found = walk(&input, Path::new(""), FILES_MAX)?;
            Ok((input, found))
        });
        let (input, found) = found.await?.map_err(|error: io::Error| {
            let message = format!("cannot read {}: {error}", self.input.display());
            CliError::invalid(message).with_hint("set --input to a folder that contains files")
        })?;
        if found.files.is_empty() {
            print_notes(&found.notes);
            let message = format!("there are no files in {}", self.input.display());
            return Err(
                CliError::invalid(message).with_hint("try a folder with source code or documents")
            );
        }
        Ok((input, found))
    }

    /// The settings of the demo. Settings files and the environment are ignored, so that a demo is the same everywhere.
    fn settings(&self, folder: &WorkFolder) -> Settings {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let default = u32::try_from(processors * 4).unwrap_or(u32::MAX).max(8);
        let mut settings = Settings::default();
        settings.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        settings.server.data = folder.database();
        settings.sinks.folder = std::path::PathBuf::new();
        settings.worker.name = "demo".into();
        settings.worker.concurrency = self.concurrency.map_or(default, NonZeroU32::get);
        settings.worker.http_allow_private = true;
        settings.log.level = "warn".into();
        settings
    }
}

/// Submits all tasks to the running services, waits for their ends, and verifies them.
async fn run_tasks(
    node: &Node,
    folder: &WorkFolder,
    found: FoundFiles,
    group: &TaskGroup,
    shutdown: &Shutdown,
    context: &Context,
) -> Result<CompletedDemo, CliError> {
    let frontend = node.frontend();
    let largest_file_bytes = found.files.iter().map(|file| file.bytes).max().unwrap_or(0);
    let stall_timeout = progress::stall_timeout(largest_file_bytes);
    let tasks = plan_tasks(found, folder.path().to_owned()).await?;
    let refused_once = tasks
        .iter()
        .filter(|task| task.kind == DemoKind::Deliver && task.expected.retried)
        .map(|task| task.submit.id)
        .collect();
    let receiver = DeliveryReceiver::start(refused_once, group, shutdown.child()).await?;
    let receiver = Arc::new(receiver);
    for job in jobs(&receiver.url(), stall_timeout)
        .map_err(|error| CliError::invalid(error.to_string()))?
    {
        frontend.call(&Call::by("demo"), PutJob::from(job)).await?;
    }
    let progress = DemoProgress {
        frontend: frontend.clone(),
        executors: node.executors().to_vec(),
        receiver: receiver.clone(),
        markers: markers(folder.path()),
        stall_timeout,
        bar: progress::bar(tasks.len(), context.output.draws_progress()),
        total: tasks.len(),
        submitted: AtomicUsize::new(0),
    };

    let started = Instant::now();
    let flow = async {
        let file = tasks[0].file.clone();
        let flow = DemoFlow::start(&*frontend, file, folder.path(), stall_timeout).await?;
        flow.until_ended(&*frontend, stall_timeout).await
    };
    let ((), (), flow) = tokio::try_join!(
        submit(&*frontend, &tasks, &progress),
        progress.until_ended(),
        flow
    )?;
    progress.set_message("verifying every result");
    let outcomes = outcomes(&*frontend).await?;
    let deliveries = receiver.deliveries();
    let (tasks, outcomes, verification) = blocking(move || {
        let mut verification = verify(&tasks, &outcomes, &deliveries);
        verification.flow = flow;
        (tasks, outcomes, verification)
    })
    .await?;
    Ok(CompletedDemo {
        tasks,
        outcomes,
        verification,
        elapsed: started.elapsed(),
    })
}

/// Plans the tasks. Planning hashes files and may take long, so due times count from the end of the planning.
async fn plan_tasks(found: FoundFiles, folder: PathBuf) -> Result<Vec<DemoTask>, CliError> {
    let files = found.files.len();
    let (tasks, notes) = blocking(move || {
        let (started, mut notes) = (SystemClock.now(), Vec::new());
        let tasks = plan(found.files, &folder, started, &SystemRng, &mut notes);
        let tasks = tasks.map(|mut tasks| {
            postpone(&mut tasks, SystemClock.now().since(started));
            tasks
        });
        (tasks, notes)
    })
    .await?;
    print_notes(&notes);
    let tasks = tasks?;
    if tasks.is_empty() {
        let message = format!("none of the {files} files can be read");
        return Err(CliError::invalid(message));
    }
    Ok(tasks)
}

async fn submit(
    frontend: &dyn Frontend,
    tasks: &[DemoTask],
    progress: &DemoProgress,
) -> Result<(), CliError> {
    for batch in tasks.chunks(BATCH_LEN) {
        let new = batch.iter().map(|task| task.submit.clone()).collect();
        for answer in frontend
            .call(&Call::by("demo"), Submit { tasks: new })
            .await?
        {
            answer?;
        }
        progress.add_submitted(batch.len());
    }
    Ok(())
}

/// The outcomes of all stored tasks.
async fn outcomes(frontend: &dyn Frontend) -> Result<BTreeMap<TaskId, DemoOutcome>, CliError> {
    let mut outcomes = BTreeMap::new();
    for kind in DemoKind::ALL {
        let mut query = ListQuery {
            limit: PAGE_LEN,
            ..ListQuery::of(progress::job_name(kind)?)
        };
        loop {
            let page = frontend
                .call(&Call::by("demo"), ListTasks(query.clone()))
                .await?;
            outcomes.extend(page.tasks.iter().map(|task| (task.id, task.into())));
            if page.next.is_none() {
                break;
            }
            query.cursor = page.next;
        }
    }
    Ok(outcomes)
}

/// Stops the services before the receiver, because running tasks may still deliver.
async fn stop(node: Node, group: &TaskGroup, shutdown: &Shutdown) -> Result<Drained, ServiceError> {
    let stopped = node.stop(GRACE).await;
    shutdown.stop_work();
    group.wait().await.and(stopped)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| CliError::new(ErrorKind::Internal, ErrorReason::Panic, error.to_string()))
}

fn print_notes(notes: &[String]) {
    for note in notes.iter().take(NOTES_PRINTED_MAX) {
        output::note(&one_line(note));
    }
    let more = notes.len().saturating_sub(NOTES_PRINTED_MAX);
    if more > 0 {
        output::note(&format!("… and {more} more"));
    }
}

fn print_address(node: &Node) {
    if let Some(address) = node.address() {
        output::note(&format!(
            "listening on http://{address} until the demo ends"
        ));
        output::note(&format!(
            "watch    dueline --server http://{address} task list {}",
            DemoKind::ALL[0].job_name()
        ));
    }
}

fn print_kept(folder: &WorkFolder) {
    let path = folder.path().display();
    output::note(&format!("kept     {path} with the compressed files"));
    output::note(&format!(
        "inspect  dueline serve --no-worker --data '{}'",
        folder.database().display()
    ));
}
