//! `dueline task get`.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use comfy_table::{Cell, Color};
use dueline_api::v1::{
    FromRunView, OwedView, PredecessorView, RetriesMax, RunView, SchedulingView, TaskView, Time,
    UniqueView,
};
use dueline_domain::WorkerId;
use serde_json::value::RawValue;

use crate::{
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
    fit::Fit,
    output::{self, TableStyle},
    sanitize::{clean, short},
    units,
};

/// Shows a task.
#[derive(Debug, clap::Args)]
pub struct Get {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,

    /// Show only the scheduling record: when the scheduler processes the task next, and whether it is new, started or
    /// completed
    #[arg(long)]
    scheduling: bool,
}

impl Get {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        if self.scheduling {
            return self.scheduling(context, &id).await;
        }
        let path = ["jobs", self.task.job.as_str(), "tasks", &id];
        let answer = context.client()?.get(&path, &[]).await?;
        context.output.show(&answer, context.now(), |style| {
            Ok(render(style, &answer.read()?))
        })?;
        Ok(Exit::Ok)
    }
}

impl Get {
    async fn scheduling(&self, context: &Context, id: &str) -> Result<Exit, CliError> {
        let path = ["jobs", self.task.job.as_str(), "tasks", id, "scheduling"];
        let answer = context.client()?.get(&path, &[]).await?;
        context.output.show(&answer, context.now(), |style| {
            let record: SchedulingView = answer.read()?;
            let next = record.next_execution.map(|at| Cell::new(at.to_string()));
            let rows = [
                ("job", Cell::new(&record.job)),
                ("next execution", next.unwrap_or_else(|| Cell::new("none"))),
                ("status", Cell::new(clean(&record.status))),
            ];
            Ok(output::text(&style.pairs(&rows)))
        })?;
        Ok(Exit::Ok)
    }
}

/// How long a task holds its key.
fn unique(unique: &UniqueView) -> Cell {
    let mut words = match unique.until.as_str() {
        "started" => "until it starts".to_owned(),
        "ended" => "until it has ended".to_owned(),
        "deleted" => "until it is deleted".to_owned(),
        other => clean(other).into_owned(),
    };
    if let Some(ms) = unique.period_ms {
        words += &format!(", for {}", units::span(Duration::from_millis(ms)));
    }
    if unique.replaced > 0 {
        words += &format!("; replaced {} times", unique.replaced);
    }
    Cell::new(words)
}

/// A task as text, without its empty fields.
pub(super) fn render(style: &TableStyle, task: &TaskView) -> String {
    let when = |at: Option<Time>| at.map(|at| Cell::new(format!("{at} ({})", style.when(at))));
    let text = |text: &Option<String>| text.as_deref().map(|text| Cell::new(clean(text)));
    let tags = (!task.tags.is_empty()).then(|| Cell::new(clean(&task.tags.join(", "))));
    let details = (task.details.get() != "{}").then(|| Cell::new(clean(task.details.get())));
    let weight = (task.weight != 1).then(|| Cell::new(task.weight));
    let worker = |worker: &Option<WorkerId>| {
        let worker = worker.as_ref();
        worker.map(|worker| Cell::new(clean(worker.as_str())))
    };
    let cancel = task
        .cancel_requested
        .then(|| style.coloured("requested", Color::Yellow));
    let tries = match task.retries_max {
        RetriesMax::Limited(max) => format!("{} of {}", task.tries, u64::from(max) + 1),
        RetriesMax::Unlimited => format!("{}, unlimited", task.tries),
    };
    let losses =
        (task.losses > 0).then(|| Cell::new(format!("{} of {}", task.losses, task.losses_max)));
    let rows = [
        ("task", Some(Cell::new(format!("{}/{}", task.job, task.id)))),
        ("state", Some(style.state(task.state))),
        ("stop", cancel),
        ("name", text(&task.name)),
        ("key", text(&task.key)),
        ("unique", task.unique.as_ref().map(unique)),
        ("fairness key", text(&task.fairness_key)),
        ("tags", tags),
        ("details", details),
        ("priority", Some(Cell::new(priority(task)))),
        ("weight", weight),
        ("parent", task.parent.as_ref().map(parent)),
        ("from run of", task.from_run.as_ref().map(from_run)),
        ("waits for", after(task)),
        ("children", children(task)),
        ("tries", Some(Cell::new(tries))),
        ("losses", losses),
        ("submitted", when(Some(task.created_at))),
        ("submitted by", text(&task.created_by)),
        ("due", when(Some(task.run_at))),
        ("originally due", when(task.original_run_at)),
        ("schedule", task.schedule.as_ref().map(Cell::new)),
        ("firing", when(task.nominal_at)),
        ("trigger time", when(task.trigger_at)),
        ("started", when(task.started_at)),
        ("ended", when(task.finished_at)),
        ("owner", worker(&task.owner)),
        ("last owner", worker(&task.last_owner)),
        ("last heartbeat", when(task.heartbeat_at)),
        (
            "claim",
            task.never_expires.then(|| Cell::new("never expires")),
        ),
        (
            "payload",
            value(task.payload.as_deref(), task.payload_base64.as_deref()),
        ),
        (
            "checkpoint",
            value(
                task.checkpoint.as_deref(),
                task.checkpoint_base64.as_deref(),
            )
            .or_else(|| plain(task.checkpoint_text.as_deref())),
        ),
        (
            "result",
            value(task.result.as_deref(), task.result_base64.as_deref())
                .or_else(|| plain(task.result_text.as_deref())),
        ),
        (
            "error",
            task.error
                .as_deref()
                .map(|error| style.coloured(&clean(error), Color::Red)),
        ),
        ("owed", task.owed.as_ref().map(owed)),
        ("hint", hint(task.error.as_deref())),
    ];
    let rows: Vec<_> = rows
        .into_iter()
        .filter_map(|(name, cell)| Some((name, cell?)))
        .collect();
    let mut text = output::text(&style.pairs(&rows));
    if !task.runs.is_empty() {
        text.push_str("\n\n");
        text.push_str(&runs(style, &task.runs, task.runs_dropped));
    }
    text
}

/// A task that another one waits for, and how it has ended.
fn predecessor(one: &PredecessorView) -> String {
    let end = one.end.as_deref().unwrap_or("open");
    format!("{}/{} ({end})", one.job, one.id)
}

fn parent(parent: &PredecessorView) -> Cell {
    Cell::new(clean(&predecessor(parent)))
}

/// The task from inside whose run a task was submitted, and how that run has ended.
fn from_run(run: &FromRunView) -> Cell {
    let end = run.end.as_deref().unwrap_or("open");
    Cell::new(clean(&format!("{}/{} ({end})", run.job, run.id)))
}

/// How many children have not ended, or did not succeed.
fn children(task: &TaskView) -> Option<Cell> {
    let children = task.children.as_deref()?;
    let text = match (task.open_children, task.children_failed) {
        (_, Some(failed)) if failed > 0 => format!("{children}, {failed} did not succeed"),
        (Some(open), _) if open > 0 => format!("{open} have not ended"),
        _ => children.to_owned(),
    };
    Some(Cell::new(clean(&text)))
}

/// The tasks that a task waits for, or has waited for, and how they have ended.
fn after(task: &TaskView) -> Option<Cell> {
    let after: Vec<_> = task.after.iter().map(predecessor).collect();
    let rule = match task.trigger_on.as_deref() {
        None | Some("success") => String::new(),
        Some(rule) => format!("; goes on after: {rule}"),
    };
    let text = format!("{}{rule}", after.join(", "));
    (!after.is_empty()).then(|| Cell::new(clean(&text)))
}

/// The name of a priority, or its number if it has no name.
pub(super) fn priority(task: &TaskView) -> String {
    let name = task
        .priority_name
        .as_deref()
        .map(|name| clean(name).into_owned());
    name.unwrap_or_else(|| task.priority.to_string())
}

/// What a finished task owes.
fn owed(owed: &OwedView) -> Cell {
    let mut text = owed.effects.join(", ");
    if owed.failures > 0 {
        let error = owed.error.as_deref().unwrap_or_default();
        text.push_str(&format!("; failed {} times: {error}", owed.failures));
        text.push_str(&format!("; next try at {}", owed.next_try_at));
    }
    Cell::new(clean(&text))
}

/// A hint for an error that a setting of the worker causes.
fn hint(error: Option<&str>) -> Option<Cell> {
    error?.contains("target_not_allowed").then(|| {
        Cell::new("a worker calls private addresses only with --set worker.http_allow_private=true")
    })
}

/// Most characters of a value that are shown.
const CHARS_MAX: usize = 300;

/// A text value.
fn plain(text: Option<&str>) -> Option<Cell> {
    let text = text?.trim_end();
    (!text.is_empty()).then(|| Cell::new(short(text, CHARS_MAX)))
}

/// A JSON value, or bytes as text where they are UTF-8.
fn value(json: Option<&RawValue>, base64: Option<&str>) -> Option<Cell> {
    let text = match (json, base64) {
        (Some(json), _) => json.get().to_owned(),
        (None, Some("") | None) => return None,
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => text.trim_end().to_owned(),
                Err(error) => format!("{} bytes", error.as_bytes().len()),
            },
            Err(_) => base64.to_owned(),
        },
    };
    Some(Cell::new(short(&text, CHARS_MAX)))
}

const RUNS_FIT: Fit = Fit {
    texts: &["INFO"],
    drops: &["WORKER", "TOOK"],
    cuts: false,
};

pub(super) fn runs(style: &TableStyle, runs: &[RunView], dropped: u32) -> String {
    let mut table = style.table(&["RUN", "END", "STARTED", "TOOK", "WORKER", "INFO"]);
    for (index, run) in runs.iter().enumerate() {
        if index == 1 && dropped > 0 {
            table.add_row([Cell::new(format!("… {dropped} more"))]);
        }
        let colour = if run.end == "succeeded" {
            Color::Green
        } else {
            Color::Red
        };
        let took_ms = run.finished_at.0.since(run.started_at.0).as_millis();
        let took = Duration::from_millis(u64::try_from(took_ms).unwrap_or(u64::MAX));
        let worker = run
            .worker
            .as_ref()
            .map(|worker| clean(worker.as_str()).into_owned());
        table.add_row([
            Cell::new(u64::from(run.attempt) + 1),
            style.coloured(&clean(&run.end), colour),
            Cell::new(style.when(run.started_at)),
            Cell::new(units::span(took)),
            Cell::new(worker.unwrap_or_default()),
            Cell::new(short(&run.info, 80)),
        ]);
    }
    output::list(&table, RUNS_FIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dueline_domain::{JobName, NewTask, Policy, Task, TaskId, Timestamp, Token, WriteId};

    #[test]
    fn f_011_f_077_a_task_is_shown_with_its_first_run_time_and_its_last_owner() {
        let at = Timestamp::clamped;
        let job = JobName::parse("mail").unwrap();
        let new = NewTask::now(TaskId::from_bytes([7; 16]), job, bytes::Bytes::new());
        let (token, write) = (Token::from_random(1), WriteId::from_random(1));
        let mut task = new.into_task(&Policy::default(), at(60_000), token, write, true);
        let style = TableStyle {
            colours: false,
            fit: false,
            now: at(60_000),
        };
        let shown = |task: &Task| render(&style, &TaskView::new(task, &Policy::default()).unwrap());
        let plain = shown(&task);
        for absent in ["originally due", "last owner"] {
            assert!(!plain.contains(absent), "{plain}");
        }
        task.options.get_or_insert_default().original_run_at = Some(at(1_000));
        task.last_owner = WorkerId::parse("w@1").ok();
        let text = shown(&task);
        let line = |name: &str| {
            let line = text.lines().find(|line| line.contains(name));
            line.unwrap_or_else(|| panic!("no '{name}' in {text}"))
                .to_owned()
        };
        assert!(
            line("originally due").contains("1970-01-01T00:00:01"),
            "{text}"
        );
        assert!(line("last owner").contains("w@1"), "{text}");
    }
}
