//! The text report at the end of a demo.

use std::{collections::BTreeMap, path::Path, time::Duration};

use comfy_table::{Cell, CellAlignment, Color};
use dueline_domain::{StateKind, TaskId};
use indicatif::HumanBytes;

use super::{DemoKind, DemoOutcome, DemoSummary, DemoTask, Verification};
use crate::{
    output::{self, TableStyle},
    sanitize::{clean, short},
    units::span,
};

/// Most mismatches that are listed. All are counted.
const MISMATCHES_LISTED_MAX: usize = 20;
/// Most characters of a mismatch's description.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// The results of a demo.
pub(super) struct DemoReport<'a> {
    /// The canonical path of the input folder.
    pub(super) input: &'a Path,
    pub(super) tasks: &'a [DemoTask],
    pub(super) outcomes: &'a BTreeMap<TaskId, DemoOutcome>,
    pub(super) verification: &'a Verification,
    pub(super) summary: &'a DemoSummary,
    /// The concurrency of the worker.
    pub(super) slots: u32,
}

/// The counts of one row of the table.
#[derive(Default)]
struct TaskCounts {
    tasks: usize,
    succeeded: usize,
    retried: usize,
    bytes: u64,
}

impl TaskCounts {
    fn add(&mut self, task: &DemoTask, outcome: Option<&DemoOutcome>) {
        self.tasks += 1;
        self.bytes += task.file.bytes;
        if let Some(outcome) = outcome {
            self.succeeded += usize::from(outcome.state == StateKind::Succeeded);
            self.retried += usize::from(outcome.tries > 1);
        }
    }

    fn cells(&self, style: &TableStyle, kind: &str, description: &str) -> Vec<Cell> {
        let succeeded = self.succeeded.to_string();
        let colour = match self.succeeded == self.tasks {
            true => Color::Green,
            false => Color::Red,
        };
        let numbers = [
            Cell::new(self.tasks),
            style.coloured(&succeeded, colour),
            Cell::new(self.retried),
            Cell::new(HumanBytes(self.bytes)),
        ];
        let numbers = numbers.map(|cell| cell.set_alignment(CellAlignment::Right));
        [Cell::new(kind), Cell::new(description)]
            .into_iter()
            .chain(numbers)
            .collect()
    }
}

impl DemoReport<'_> {
    /// The report as text.
    pub(super) fn render(&self, style: &TableStyle) -> String {
        let files = match self.summary.files {
            1 => "1 file".into(),
            files => format!("{files} files"),
        };
        let input = self.input.to_string_lossy();
        let mut parts = vec![format!("{files} in {}", clean(&input)), self.kinds(style)];
        if !self.verification.mismatches.is_empty() {
            parts.push(self.mismatches(style));
        }
        parts.push(self.summary(style));
        parts.join("\n\n")
    }

    /// Prints the mismatches to standard error, in addition to the JSON summary.
    pub(super) fn print_mismatches(&self) {
        let mismatches = &self.verification.mismatches;
        for mismatch in mismatches.iter().take(MISMATCHES_LISTED_MAX) {
            let file = mismatch.file.to_string_lossy();
            output::note(&format!(
                "mismatch: {}: {}",
                clean(&file),
                short(&mismatch.description, DESCRIPTION_CHARS_MAX)
            ));
        }
        for defect in &self.verification.flow.defects {
            output::note(&format!(
                "mismatch: {}",
                short(defect, DESCRIPTION_CHARS_MAX)
            ));
        }
        let more = mismatches.len().saturating_sub(MISMATCHES_LISTED_MAX);
        if more > 0 {
            output::note(&format!("… and {more} more"));
        }
    }

    fn kinds(&self, style: &TableStyle) -> String {
        let header = [
            "KIND",
            "DESCRIPTION",
            "TASKS",
            "SUCCEEDED",
            "RETRIED",
            "BYTES",
        ];
        let mut table = style.table(&header);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut total = TaskCounts::default();
        for kind in DemoKind::ALL {
            let mut counts = TaskCounts::default();
            for task in self.tasks.iter().filter(|task| task.kind == kind) {
                let outcome = self.outcomes.get(&task.submit.id);
                counts.add(task, outcome);
                total.add(task, outcome);
            }
            table.add_row(counts.cells(style, kind.name(), kind.info()));
        }
        table.add_row(total.cells(style, "total", ""));
        output::text(&table)
    }

    fn mismatches(&self, style: &TableStyle) -> String {
        let mut table = style.table(&["FILE", "MISMATCH"]);
        let mismatches = &self.verification.mismatches;
        for mismatch in mismatches.iter().take(MISMATCHES_LISTED_MAX) {
            let file = mismatch.file.strip_prefix(self.input);
            let file = file.unwrap_or(&mismatch.file).to_string_lossy();
            let description = short(&mismatch.description, DESCRIPTION_CHARS_MAX);
            table.add_row([&*clean(&file), &*description]);
        }
        let mut text = output::text(&table);
        let more = mismatches.len().saturating_sub(MISMATCHES_LISTED_MAX);
        if more > 0 {
            text.push_str(&format!("\n… and {more} more"));
        }
        text
    }

    fn summary(&self, style: &TableStyle) -> String {
        let elapsed = Duration::from_millis(self.summary.elapsed_ms);
        let mut rows = vec![("elapsed", Cell::new(rate(self.tasks.len(), elapsed)))];
        let late_ms = self.late_ms();
        if let Some(lateness) = lateness(&late_ms, self.tasks.len(), self.slots) {
            let is_early = late_ms.iter().any(|late_ms| *late_ms < 0);
            let cell = match is_early {
                true => style.coloured(&lateness, Color::Red),
                false => Cell::new(lateness),
            };
            rows.push(("scheduled", cell));
        }
        let planned = self.tasks.iter().filter(|task| task.expected.retried);
        let planned = planned.count();
        if planned > 0 {
            let retried = self.summary.retried;
            let text = match planned {
                1 => format!("{retried} of 1 task that failed once on purpose"),
                planned => format!("{retried} of {planned} tasks that failed once on purpose"),
            };
            rows.push(("retried", Cell::new(text)));
        }
        let flow = &self.verification.flow;
        let chain = format!(
            "{} steps succeeded, each after the one before it",
            flow.steps
        );
        let fired = format!("{} firings, a second apart", flow.firings);
        rows.extend([("chain", Cell::new(chain)), ("schedule", Cell::new(fired))]);
        for defect in &flow.defects {
            let defect = short(defect, DESCRIPTION_CHARS_MAX);
            rows.push(("mismatch", style.coloured(&defect, Color::Red)));
        }
        let changed = self.verification.changed.len();
        if changed > 0 {
            let text =
                format!("{changed} of the files during the demo; their results are not verified");
            rows.push(("changed", style.coloured(&text, Color::Yellow)));
        }
        let verdict = match self.summary.mismatches {
            0 => style.coloured(
                "no mismatch: every result was computed again and is the same",
                Color::Green,
            ),
            1 => style.coloured("1 mismatch", Color::Red),
            wrong => style.coloured(&format!("{wrong} mismatches"), Color::Red),
        };
        rows.push(("verified", verdict));
        output::text(&style.pairs(&rows))
    }

    /// How late each scheduled task started, in ascending order.
    fn late_ms(&self) -> Vec<i64> {
        let scheduled = self
            .tasks
            .iter()
            .filter(|task| task.submit.due.at().is_some());
        let mut late_ms: Vec<i64> = scheduled
            .filter_map(|task| {
                let outcome = self.outcomes.get(&task.submit.id)?;
                Some(outcome.started_at?.millis() - outcome.run_at.millis())
            })
            .collect();
        late_ms.sort_unstable();
        late_ms
    }
}

/// How late the scheduled tasks started, as text. `late_ms` is in ascending order.
fn lateness(late_ms: &[i64], tasks: usize, slots: u32) -> Option<String> {
    let (first, last) = (*late_ms.first()?, *late_ms.last()?);
    let text_of = |late_ms: i64| span(Duration::from_millis(late_ms.unsigned_abs()));
    let scheduled = late_ms.len();
    if first < 0 {
        let early = late_ms.iter().filter(|late_ms| **late_ms < 0).count();
        let text = format!(
            "{early} of {scheduled} started before their due time, by up to {}",
            text_of(first)
        );
        return Some(text);
    }
    let mut text = match scheduled {
        1 => format!("1 task, started {} after its due time", text_of(first)),
        _ => format!(
            "{scheduled} tasks, started {} to {} after their due time, none before",
            text_of(first),
            text_of(last)
        ),
    };
    if last >= 1_000 {
        text.push_str(&format!(" ({tasks} tasks on {slots} slots)"));
    }
    Some(text)
}

fn rate(tasks: usize, elapsed: Duration) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a demo has fewer than 2^53 tasks"
    )]
    let rate = tasks as f64 / elapsed.as_secs_f64().max(0.001);
    let digits = usize::from(rate < 10.0);
    format!("{:.1} s, {rate:.digits$} tasks/s", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lateness_is_reported_for_one_task_for_many_and_for_early_ones() {
        let text = |late_ms: &[i64]| lateness(late_ms, 60, 8).unwrap_or_default();
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[8]), "1 task, started 8 ms after its due time");
        assert_eq!(
            text(&[0, 3, 40]),
            "3 tasks, started 0 ms to 40 ms after their due time, none before"
        );
        assert!(
            text(&[0, 14_000])
                .ends_with("14 s after their due time, none before (60 tasks on 8 slots)")
        );
        assert_eq!(
            text(&[-2, -1, 9]),
            "2 of 3 started before their due time, by up to 2 ms"
        );
    }

    #[test]
    fn the_rate_is_in_tasks_per_second() {
        assert_eq!(rate(12, Duration::from_millis(1_054)), "1.1 s, 11 tasks/s");
        assert_eq!(rate(4, Duration::from_secs(9)), "9.0 s, 0.4 tasks/s");
        assert_eq!(rate(1, Duration::ZERO), "0.0 s, 1000 tasks/s");
    }
}
