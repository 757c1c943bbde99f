//! `dueline trash`.

use clap::Subcommand;
use comfy_table::Cell;
use dueline_api::v1::{TaskPage, TaskView};
use dueline_domain::JobName;

use crate::{
    context::Context,
    exit::{CliError, Exit},
    fit::Fit,
    output::{self, TableStyle},
    sanitize::{clean, short},
};

/// The commands of `dueline trash`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the tasks that were trashed: who, when, why, and their payloads
    List(List),
}

/// Lists trashed tasks.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Name of the job
    job: JobName,

    /// Most tasks to list, up to 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,

    /// Cursor that an earlier list printed, to continue from there
    #[arg(long)]
    cursor: Option<String>,
}

impl Command {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Self::List(command) = self;
        command.run(context).await
    }
}

impl List {
    async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let mut query = vec![
            ("state", "trashed".to_owned()),
            ("limit", self.limit.to_string()),
        ];
        query.extend(self.cursor.map(|cursor| ("cursor", cursor)));
        let path = ["jobs", self.job.as_str(), "tasks"];
        let answer = context.client()?.get(&path, &query).await?;
        context.output.show(&answer, context.now(), |style| {
            let page: TaskPage = answer.read()?;
            Ok(render(style, &page.tasks, page.next.as_deref()))
        })?;
        Ok(Exit::Ok)
    }
}

const FIT: Fit = Fit {
    texts: &["PAYLOAD", "REASON"],
    drops: &["PAYLOAD", "OWNER"],
    cuts: true,
};

fn render(style: &TableStyle, tasks: &[TaskView], next: Option<&str>) -> String {
    if tasks.is_empty() {
        return "no task was trashed".into();
    }
    let mut table = style.table(&["TASK", "TRASHED", "OWNER", "REASON", "PAYLOAD"]);
    for task in tasks {
        let owner = task.last_owner.as_ref();
        let payload = match (&task.payload, &task.payload_base64) {
            (Some(json), _) => json.get(),
            (None, base64) => base64.as_deref().unwrap_or_default(),
        };
        table.add_row([
            Cell::new(format!("{}/{}", task.job, task.id)),
            Cell::new(
                task.finished_at
                    .map(|at| style.when(at))
                    .unwrap_or_default(),
            ),
            Cell::new(owner.map(|owner| clean(owner.as_str())).unwrap_or_default()),
            Cell::new(short(task.error.as_deref().unwrap_or_default(), 50)),
            Cell::new(short(payload, 50)),
        ]);
    }
    let mut text = output::list(&table, FIT);
    if let Some(cursor) = next {
        let cursor = clean(cursor);
        text.push_str(&format!("\n\nmore tasks exist: use --cursor {cursor}"));
    }
    text
}
