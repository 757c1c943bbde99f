//! `dueline task watch`.

use std::{str::FromStr, time::Duration};

use dueline_api::{
    ErrorKind, ErrorReason,
    v1::{ChangeView, Problem},
};
use dueline_domain::{JobName, StateKind, TaskId};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
    output::TableStyle,
    sanitize::clean,
    server_events::{EventReader, ServerEvent},
    units::{parse_duration, span},
};

/// How long a watch tries to come back to a server that is away.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// Time between two of these tries.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// A server says at least this often that it is still there.
const SILENCE_MAX: Duration = Duration::from_secs(45);

const EXAMPLES: &str = "\
Examples:
  dueline task watch review
  dueline task watch review --json | jq -r 'select(.kind == \"ended\") | .id'
  dueline task watch review/0197b0c4-5a1e-7c4e-9a59-3f0c6b1d2e4f";

/// Prints what is posted, changed, ended and removed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Watch {
    /// A job; or a task, which is watched until it has ended
    #[arg(value_name = "JOB[/ID]")]
    target: Target,

    /// Go on from a position that an earlier watch printed
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,

    /// Longest time to watch [default: until interrupted, or until the task has ended]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

/// What is watched.
#[derive(Clone, Debug)]
struct Target {
    job: JobName,
    id: Option<TaskId>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            let TaskReference { job, id } = text.parse()?;
            return Ok(Self { job, id: Some(id) });
        }
        let job = JobName::parse(text).map_err(|error| error.to_string())?;
        Ok(Self { job, id: None })
    }
}

/// Why a stream of events is over.
enum End {
    /// The task has ended so.
    Task(Exit),
    /// The connection is.
    Connection,
}

impl Watch {
    pub(super) async fn run(mut self, context: &Context) -> Result<Exit, CliError> {
        let Some(timeout) = self.timeout else {
            return self.watch(context).await;
        };
        let until = Instant::now() + timeout;
        let is_task = self.target.id.is_some();
        match timeout_at(until, self.watch(context)).await {
            Ok(ended) => ended,
            // A watch of a job that ends at its timeout has succeeded.
            Err(_) if !is_task => Ok(Exit::Ok),
            Err(_) => {
                let message = format!("the task has not ended after {}", span(timeout));
                let reason = ErrorReason::NotEnded;
                Err(CliError::new(ErrorKind::Deadline, reason, message))
            }
        }
    }

    async fn watch(&mut self, context: &Context) -> Result<Exit, CliError> {
        let mut away_since: Option<Instant> = None;
        loop {
            match self.stream(context, &mut away_since).await {
                Ok(End::Task(exit)) => return Ok(exit),
                Ok(End::Connection) => {}
                // A watch that has begun survives a restart of the server.
                Err(error) if error.exit() == Exit::Unavailable && self.cursor.is_some() => {
                    let since = *away_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= AWAY_MAX {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            sleep(TRY_EVERY).await;
        }
    }

    async fn stream(
        &mut self,
        context: &Context,
        away_since: &mut Option<Instant>,
    ) -> Result<End, CliError> {
        let client = context.client()?;
        let id = self.target.id.map(|id| ("task", id.to_string()));
        let cursor = self.cursor.clone().map(|cursor| ("cursor", cursor));
        let query: Vec<_> = id.into_iter().chain(cursor).collect();
        let path = ["jobs", self.target.job.as_str(), "watch"];
        let mut response = client.open(&path, &query).await?;
        *away_since = None;
        let mut reader = EventReader::default();
        loop {
            let silent_at = Instant::now() + SILENCE_MAX;
            let Ok(Ok(Some(bytes))) = timeout_at(silent_at, response.chunk()).await else {
                return Ok(End::Connection);
            };
            let events = reader.read(&bytes).ok_or_else(|| {
                let message = "the answer of the server holds no events";
                CliError::new(
                    ErrorKind::Internal,
                    ErrorReason::AnswerNotUnderstood,
                    message,
                )
            })?;
            for event in events {
                if !event.id.is_empty() {
                    self.cursor = Some(event.id.clone());
                }
                if let Some(exit) = self.show(context, &event)? {
                    return Ok(End::Task(exit));
                }
            }
        }
    }

    /// Prints an event. Returns how the task has ended.
    fn show(&self, context: &Context, event: &ServerEvent) -> Result<Option<Exit>, CliError> {
        let malformed = |error: serde_json::Error| {
            let message = format!("an event of the server is malformed: {error}");
            CliError::new(
                ErrorKind::Internal,
                ErrorReason::AnswerNotUnderstood,
                message,
            )
        };
        match &*event.name {
            // A program lists the tasks once it has read this line, and misses nothing.
            "position" => {
                if context.output.is_json() {
                    let line = format!(r#"{{"kind":"position","cursor":{:?}}}"#, event.id);
                    context.output.verbatim(&line)?;
                }
                return Ok(None);
            }
            "error" => {
                let problem: Problem = serde_json::from_str(&event.data).map_err(malformed)?;
                // A server that stops, or a store that is away, does not end a watch.
                return match problem.retryable {
                    true => Ok(None),
                    false => Err(problem.into()),
                };
            }
            "gap" => {
                let gap = format!(r#"{{"kind":"gap","cursor":{:?}}}"#, event.id);
                let text = "changes were missed; list the tasks to know how they are";
                let text = if context.output.is_json() { &gap } else { text };
                context.output.line(text)?;
                return Ok(None);
            }
            _ => {}
        }
        let change: ChangeView = serde_json::from_str(&event.data).map_err(malformed)?;
        if context.output.is_json() {
            context.output.verbatim(&event.data)?;
        } else {
            let style = context.output.style(context.now());
            context.output.line(&line(&style, &change))?;
        }
        let is_over = matches!(&*change.kind, "ended" | "removed") && self.target.id.is_some();
        let exit = match change.state {
            Some(StateKind::Succeeded) => Exit::Ok,
            _ => Exit::Unsuccessful,
        };
        Ok(is_over.then_some(exit))
    }
}

fn line(style: &TableStyle, change: &ChangeView) -> String {
    let mut text = format!("{:<8} {}/{}", change.kind, change.job, change.id);
    if let Some(state) = change.state {
        text.push_str(&format!(" {state}"));
    }
    if let Some(attempt) = change.attempt {
        text.push_str(&format!(" run {}", attempt + 1));
    }
    if let Some(owner) = &change.owner {
        text.push_str(&format!(" owner {}", clean(owner.as_str())));
    }
    if let (Some(StateKind::New), Some(run_at)) = (change.state, change.run_at) {
        text.push_str(&format!(" due {}", style.when(run_at)));
    }
    if change.cancel_requested {
        text.push_str(" asked to stop");
    }
    text
}
