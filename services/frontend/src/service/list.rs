//! Pages of tasks, bounded in bytes.

use dueline_api::{ApiError, Call, operation::ListTasks};
use dueline_domain::{Task, TaskOptions};
use dueline_ports::{ListQuery, Page};

use super::{Inner, Serve};

/// Most bytes of the tasks on a page, unless its only task is larger. A page fits into one gRPC message, and readers that
/// are slow to take their pages keep little memory busy.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Tasks in the first read of a page. Nothing is known of their size yet, and a store reads whole tasks.
const FIRST_READ: usize = 16;
/// What a task takes on a page beside its texts and payloads.
const TASK_BYTES: usize = 512;

impl Serve for ListTasks {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Page, ApiError> {
        let Self(query) = self;
        inner.job(&query.job).await?;
        let mut page = Page {
            tasks: Vec::new(),
            next: query.cursor.clone(),
        };
        let (mut bytes, mut limit) = (0, FIRST_READ);
        loop {
            let read = ListQuery {
                limit: limit.min(query.limit - page.tasks.len()),
                cursor: page.next.clone(),
                ..query.clone()
            };
            let found = inner.deps.store.list(read.clone()).await?;
            let found_bytes: usize = found.tasks.iter().map(task_bytes).sum();
            if bytes + found_bytes > PAGE_BYTES_MAX && page.tasks.len() + found.tasks.len() > 1 {
                if page.tasks.is_empty() {
                    // Only the store knows the cursor after a task, so the part that fits is read again.
                    let limit = fitting(&found.tasks).max(1);
                    page = inner.deps.store.list(ListQuery { limit, ..read }).await?;
                }
                break;
            }
            // A store that finds fewer tasks than it was asked for has done its share of work for one page.
            let is_short = found.tasks.len() < read.limit;
            page.tasks.extend(found.tasks);
            page.next = found.next;
            bytes += found_bytes;
            if page.next.is_none() || is_short || page.tasks.len() >= query.limit {
                break;
            }
            let average = bytes / page.tasks.len();
            limit = (PAGE_BYTES_MAX.saturating_sub(bytes) / average).max(1);
        }
        page.tasks = page.tasks.into_iter().map(Task::without_secrets).collect();
        Ok(page)
    }
}

/// How many of these tasks fit into a page.
fn fitting(tasks: &[Task]) -> usize {
    let mut bytes = 0;
    let fits = |task: &&Task| {
        bytes += task_bytes(task);
        bytes <= PAGE_BYTES_MAX
    };
    tasks.iter().take_while(fits).count()
}

/// About how many bytes a task takes on a page.
fn task_bytes(task: &Task) -> usize {
    let data = [
        Some(&task.payload),
        task.checkpoint.as_ref(),
        task.result.as_ref(),
    ];
    let data: usize = data.into_iter().flatten().map(|data| data.len()).sum();
    let error = task.error.as_ref().map_or(0, |error| error.len());
    let runs = task.history.iter().flat_map(|history| &history.runs);
    let runs: usize = runs.map(|run| TASK_BYTES + run.info.len()).sum();
    let options = task.options.as_deref().map_or(0, option_bytes);
    TASK_BYTES + data + error + runs + options
}

fn option_bytes(options: &TaskOptions) -> usize {
    let texts = [
        &options.name,
        &options.details,
        &options.key,
        &options.created_by,
        &options.content_type,
    ];
    let texts = texts.into_iter().flatten().chain(&options.tags);
    texts.map(|text| text.len()).sum()
}
