//! `dueline task list`.

use comfy_table::Cell;
use dueline_api::v1::{TaskPage, TaskView, Time};
use dueline_domain::{JobName, ScheduleName, StateKind};
use dueline_ports::ListOrder;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::get::priority;
use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
    fit::Fit,
    output::{self, TableStyle},
    sanitize::{clean, short},
    units::parse_time,
};

/// Most tasks that the server returns in one page.
const PAGE_LEN_MAX: usize = 1_000;

const EXAMPLES: &str = "\
Examples:
  dueline task list greet --state failed --state trashed
  dueline task list greet --tag demo --limit 1000 --json
  dueline task list greet --claimable --ids
  dueline task list greet --order due --limit 10";

/// Lists the tasks of a job.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct List {
    /// Name of the job
    job: JobName,

    /// Only tasks in this state; may be repeated
    #[arg(long = "state", value_name = "STATE")]
    states: Vec<StateKind>,

    /// Only tasks without an owner that have not ended
    #[arg(long, conflicts_with_all = ["states", "claimable"])]
    unclaimed: bool,

    /// Only tasks that can be claimed now
    #[arg(long, conflicts_with = "states")]
    claimable: bool,

    /// Read what is stored now. Every list does: nothing is cached
    #[arg(long)]
    fresh: bool,

    /// Only tasks with this tag
    #[arg(long)]
    tag: Option<String>,

    /// Only tasks of this name
    #[arg(long)]
    name: Option<String>,

    /// Only the task with this idempotency key
    #[arg(long)]
    key: Option<String>,

    /// Only tasks due at this time or later, in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    due_from: Option<Time>,

    /// Only tasks due before this time, in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    due_before: Option<Time>,

    /// Only tasks that this schedule has created
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleName>,

    /// Order: posted, -posted, due, -due; with a hyphen the latest first. By due time only tasks that wait for it
    #[arg(
        long,
        value_name = "ORDER",
        allow_hyphen_values = true,
        default_value = "-posted"
    )]
    order: ListOrder,

    /// Most tasks to list
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,

    /// Cursor that an earlier list printed, to continue from there
    #[arg(long)]
    cursor: Option<String>,

    /// Print nothing but JOB/ID of each task
    #[arg(long, conflicts_with = "json")]
    ids: bool,
}

/// A page of tasks in the server's own JSON, so that `--json` prints every digit.
#[derive(Debug, Serialize, Deserialize)]
struct RawTaskPage {
    tasks: Vec<Box<RawValue>>,
    #[serde(default)]
    next: Option<String>,
}

impl List {
    pub(super) async fn run(mut self, context: &Context) -> Result<Exit, CliError> {
        if self.limit == 0 {
            return Err(CliError::invalid("--limit must be at least 1"));
        }
        if self.unclaimed {
            let all = StateKind::ALL.into_iter();
            self.states = all.filter(|state| state.is_pending()).collect();
        } else if self.claimable {
            self.states = vec![StateKind::Enqueued];
        }
        let client = context.client()?;
        let path = ["jobs", self.job.as_str(), "tasks"];
        let mut tasks = Vec::new();
        loop {
            let limit = (self.limit - tasks.len()).min(PAGE_LEN_MAX);
            let page: RawTaskPage = client.get(&path, &self.query(limit)).await?.read()?;
            tasks.extend(page.tasks);
            self.cursor = page.next;
            if self.cursor.is_none() || tasks.len() >= self.limit {
                break;
            }
        }
        let answer = JsonAnswer::of(&RawTaskPage {
            tasks,
            next: self.cursor,
        });
        if self.ids {
            let page: TaskPage = answer.read()?;
            for task in &page.tasks {
                context.output.line(&format!("{}/{}", task.job, task.id))?;
            }
            return Ok(Exit::Ok);
        }
        context.output.show(&answer, context.now(), |style| {
            let page: TaskPage = answer.read()?;
            Ok(render(style, &page.tasks, page.next.as_deref()))
        })?;
        Ok(Exit::Ok)
    }

    fn query(&self, limit: usize) -> Vec<(&'static str, String)> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(self.states.iter().map(|state| ("state", state.to_string())));
        let is_other = self.order != ListOrder::default();
        let texts = [
            ("tag", self.tag.clone()),
            ("name", self.name.clone()),
            ("key", self.key.clone()),
            ("due_from", self.due_from.map(|at| at.to_string())),
            ("due_before", self.due_before.map(|at| at.to_string())),
            (
                "schedule",
                self.schedule.as_ref().map(|schedule| schedule.to_string()),
            ),
            // An older server does not know the parameter.
            ("order", is_other.then(|| self.order.to_string())),
            ("cursor", self.cursor.clone()),
        ];
        query.extend(
            texts
                .into_iter()
                .filter_map(|(name, text)| Some((name, text?))),
        );
        query
    }
}

/// The id, the state and what went wrong fit a terminal of 80 columns.
const FIT: Fit = Fit {
    texts: &["NAME", "ERROR"],
    drops: &["PRIORITY", "NAME", "TRIES", "DUE", "ERROR", "OWNER"],
    cuts: true,
};

/// The owner of a task. A claim that never expires says so, because nothing but its owner ends it.
fn owner(task: &TaskView) -> String {
    let Some(owner) = &task.owner else {
        return String::new();
    };
    let never = if task.never_expires {
        " (never expires)"
    } else {
        ""
    };
    format!("{}{never}", clean(owner.as_str()))
}

fn render(style: &TableStyle, tasks: &[TaskView], next: Option<&str>) -> String {
    if tasks.is_empty() {
        return "no tasks found".into();
    }
    let mut header = vec!["TASK", "STATE", "PRIORITY", "DUE", "TRIES", "NAME", "ERROR"];
    let are_owned = tasks.iter().any(|task| task.owner.is_some());
    if are_owned {
        header.push("OWNER");
    }
    let mut table = style.table(&header);
    for task in tasks {
        let mut cells = vec![
            Cell::new(format!("{}/{}", task.job, task.id)),
            style.state(task.state),
            Cell::new(priority(task)),
            Cell::new(style.when(task.run_at)),
            Cell::new(task.tries),
            Cell::new(short(task.name.as_deref().unwrap_or_default(), 30)),
            Cell::new(short(task.error.as_deref().unwrap_or_default(), 50)),
        ];
        if are_owned {
            cells.push(Cell::new(owner(task)));
        }
        table.add_row(cells);
    }
    let mut text = output::list(&table, FIT);
    if let Some(cursor) = next {
        text.push_str(&format!(
            "\n\nmore tasks exist: use --limit N, or --cursor {}",
            clean(cursor)
        ));
    }
    text
}
