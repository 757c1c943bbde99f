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
use dueline_api::{ErrorKind, Frontend};
use dueline_domain::TaskId;
use dueline_ports::{Clock as _, ListQuery};
use dueline_runtime::{
    ServiceError, Settings, Shutdown, SystemClock, SystemRng, TaskGroup, incarnation,
};
use tokio::time::Instant;

use super::{
    DemoOutcome, DemoTask, Found, Kind, Receiver, Summary, Verified,
    folder::WorkFolder,
    jobs, plan,
    plan::{marks, postpone},
    report::Report,
    verify, walk, watch,
    watch::Watch,
};
use crate::{
    cli::Context,
    commands::process::{self, Signals},
    exit::{CliError, Exit},
    output::clean,
};

/// Files of one demo.
const FILES_MAX: usize = 100_000;
/// Notes that are told; the rest is counted.
const NOTES_TOLD_MAX: usize = 10;
/// Tasks in one submit.
const BATCH_LEN: usize = 500;
/// Tasks on one page of a list; each carries its payload.
const PAGE_LEN: usize = 500;
/// What runs when somebody stops the demo has this long to end.
const GRACE: Duration = Duration::from_secs(5);

/// What a demo is, below its help.
const HELP: &str = "\
Each file becomes a task: a command computes its SHA-256, a command compresses it, or facts about it are delivered over \
HTTP. Each seventh task is due 1 to 3 s later, each tenth fails once on purpose, and priorities differ. When all are done, \
every result is computed again and compared. The files are only read. Everything runs in this process, on a fresh SQLite \
file. With --json the last line is the summary.";

/// Works through the files of a folder in one process and checks every result.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Demo {
    /// Folder with the files to work on
    #[arg(long, value_name = "DIR")]
    input: PathBuf,

    /// Folder for the store and the compressed files, which get one of their own in it; not inside the input [default:
    /// the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,

    /// How much runs at once [default: four times the processors, at least 8]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroU32>,

    /// Keep the store and the compressed files
    #[arg(long)]
    keep: bool,
}

/// What a demo did.
struct Done {
    tasks: Vec<DemoTask>,
    outcomes: BTreeMap<TaskId, DemoOutcome>,
    verified: Verified,
    elapsed: Duration,
}

impl Demo {
    pub(in crate::commands) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let (input, found) = self.files().await?;
        let files = found.files.len();
        tell_notes(&found.notes);

        // From here on a signal is no reason to leave anything lying around.
        let mut signals = Signals::listen()?;
        let number = incarnation();
        let folder = WorkFolder::make(self.work.as_deref(), &input, number, self.keep)?;
        let prepared = process::with_settings(self.settings(&folder))?;
        let mut config = process::node(&prepared);
        config
            .workers
            .push(process::worker(&prepared.settings, true)?);
        let node = Node::start(config)
            .await
            .map_err(|error| process::start_error(&error))?;
        tell_address(&node);

        let (group, shutdown) = (TaskGroup::new(), Shutdown::new());
        let failed = async {
            tokio::select! {
                biased;
                error = node.failed() => error,
                error = group.failed() => error,
            }
        };
        let work = work(&node, &folder, found, &group, &shutdown, context);
        let ended = tokio::select! {
            biased;
            stopped = signals.received(failed) => stopped.map(|()| None),
            done = work => done.map(Some),
        };
        let executors = node.executors().to_vec();
        let stopping = stop(node, &group, &shutdown);
        let stopped = match &ended {
            Ok(None) => process::stop(GRACE, &executors, stopping).await.map(drop),
            _ => stopping
                .await
                .map(drop)
                .map_err(|error| process::service_error(&error)),
        };
        let Some(done) = ended? else {
            stopped?;
            let message = "interrupted before every task was done; nothing was verified";
            return Err(CliError::new(ErrorKind::Deadline, "interrupted", message));
        };
        stopped?;
        if self.keep {
            tell_kept(&folder);
        }
        let summary = Summary::new(files, done.tasks.len(), &done.verified, done.elapsed);
        let report = Report {
            input: &input,
            tasks: &done.tasks,
            outcomes: &done.outcomes,
            verified: &done.verified,
            summary: &summary,
            slots: prepared.settings.worker.concurrency,
        };
        if context.output.is_json() {
            report.tell_mismatches();
            context.output.line(&summary.to_json())?;
        } else {
            let style = context.output.style(context.now());
            context.output.line(&report.tell(&style))?;
        }
        Ok(summary.exit())
    }

    /// The files, and the folder of their paths.
    async fn files(&self) -> Result<(PathBuf, Found), CliError> {
        let wanted = self.input.clone();
        let found = blocking(move || {
            let input = wanted.canonicalize()?;
            let found = walk(&input, Path::new(""), FILES_MAX)?;
            Ok((input, found))
        });
        let (input, found) = found.await?.map_err(|error: io::Error| {
            let message = format!("cannot read {}: {error}", self.input.display());
            CliError::invalid(message).with_hint("--input names a folder with files in it")
        })?;
        if found.files.is_empty() {
            tell_notes(&found.notes);
            let message = format!("there are no files in {}", self.input.display());
            return Err(
                CliError::invalid(message).with_hint("try a folder with source code or texts")
            );
        }
        Ok((input, found))
    }

    /// Neither a file nor the environment has a say: a demo is the same everywhere.
    fn settings(&self, folder: &WorkFolder) -> Settings {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let usual = u32::try_from(processors * 4).unwrap_or(u32::MAX).max(8);
        let mut settings = Settings::default();
        settings.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        settings.server.data = folder.database();
        settings.worker.name = "demo".into();
        settings.worker.concurrency = self.concurrency.map_or(usual, NonZeroU32::get);
        settings.worker.http_allow_private = true;
        settings.log.level = "warn".into();
        settings
    }
}

/// Everything between the start and the end of the services.
async fn work(
    node: &Node,
    folder: &WorkFolder,
    found: Found,
    group: &TaskGroup,
    shutdown: &Shutdown,
    context: &Context,
) -> Result<Done, CliError> {
    let frontend = node.frontend();
    let patience = watch::patience(found.files.iter().map(|file| file.bytes).max().unwrap_or(0));
    let tasks = planned(found, folder.path().to_owned()).await?;
    let refused_once = tasks
        .iter()
        .filter(|task| task.kind == Kind::Deliver && task.expected.retried)
        .map(|task| task.submit.id)
        .collect();
    let receiver = Receiver::start(refused_once, group, shutdown.child()).await?;
    let receiver = Arc::new(receiver);
    for job in
        jobs(&receiver.url(), patience).map_err(|error| CliError::invalid(error.to_string()))?
    {
        frontend.put_job(job).await?;
    }
    let watch = Watch {
        frontend: frontend.clone(),
        executors: node.executors().to_vec(),
        receiver: receiver.clone(),
        marks: marks(folder.path()),
        patience,
        bar: watch::bar(tasks.len(), context.output.draws_progress()),
        total: tasks.len(),
        submitted: AtomicUsize::new(0),
    };

    let began = Instant::now();
    tokio::try_join!(submit(&*frontend, &tasks, &watch), watch.until_ended())?;
    watch.say("checking every result");
    let outcomes = outcomes(&*frontend).await?;
    let deliveries = receiver.deliveries();
    let (tasks, outcomes, verified) = blocking(move || {
        let verified = verify(&tasks, &outcomes, &deliveries);
        (tasks, outcomes, verified)
    })
    .await?;
    Ok(Done {
        tasks,
        outcomes,
        verified,
        elapsed: began.elapsed(),
    })
}

/// Plans the tasks. Times begin to count when everything is planned, however large the files are.
async fn planned(found: Found, folder: PathBuf) -> Result<Vec<DemoTask>, CliError> {
    let files = found.files.len();
    let (tasks, notes) = blocking(move || {
        let (began, mut notes) = (SystemClock.now(), Vec::new());
        let tasks = plan(found.files, &folder, began, &SystemRng, &mut notes);
        let tasks = tasks.map(|mut tasks| {
            postpone(&mut tasks, SystemClock.now().since(began));
            tasks
        });
        (tasks, notes)
    })
    .await?;
    tell_notes(&notes);
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
    watch: &Watch,
) -> Result<(), CliError> {
    for batch in tasks.chunks(BATCH_LEN) {
        let new = batch.iter().map(|task| task.submit.clone()).collect();
        for answer in frontend.submit(new).await {
            answer?;
        }
        watch.submitted(batch.len());
    }
    Ok(())
}

/// What came of all tasks.
async fn outcomes(frontend: &dyn Frontend) -> Result<BTreeMap<TaskId, DemoOutcome>, CliError> {
    let mut outcomes = BTreeMap::new();
    for kind in Kind::ALL {
        let mut query = ListQuery {
            limit: PAGE_LEN,
            ..ListQuery::of(watch::job(kind)?)
        };
        loop {
            let page = frontend.tasks(query.clone()).await?;
            outcomes.extend(page.tasks.iter().map(|task| (task.id, task.into())));
            if page.next.is_none() {
                break;
            }
            query.cursor = page.next;
        }
    }
    Ok(outcomes)
}

/// The services first: what they still deliver must find somebody.
async fn stop(node: Node, group: &TaskGroup, shutdown: &Shutdown) -> Result<Drained, ServiceError> {
    let stopped = node.stop(GRACE).await;
    shutdown.stop_work();
    group.wait().await.and(stopped)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| CliError::new(ErrorKind::Internal, "panic", error.to_string()))
}

fn tell_notes(notes: &[String]) {
    for note in notes.iter().take(NOTES_TOLD_MAX) {
        eprintln!("{}", clean(note));
    }
    let more = notes.len().saturating_sub(NOTES_TOLD_MAX);
    if more > 0 {
        eprintln!("… and {more} more");
    }
}

fn tell_address(node: &Node) {
    if let Some(address) = node.address() {
        eprintln!("listening on http://{address} until the demo is over");
        eprintln!(
            "watch    dueline --server http://{address} task list {}",
            Kind::ALL[0].job_name()
        );
    }
}

fn tell_kept(folder: &WorkFolder) {
    let path = folder.path().display();
    eprintln!("kept     {path} with the compressed files");
    eprintln!(
        "look     dueline serve --no-worker --data '{}'",
        folder.database().display()
    );
}
