//! What a demo tells people when it is over.

use std::{collections::BTreeMap, path::Path, time::Duration};

use comfy_table::{Cell, CellAlignment, Color};
use dueline_domain::{StateKind, TaskId};
use indicatif::HumanBytes;

use super::{DemoOutcome, DemoTask, Kind, Summary, Verified};
use crate::{
    output::{self, Style, clean, short},
    units::span,
};

/// Mismatches that are told one by one.
const MISMATCHES_TOLD_MAX: usize = 20;
/// Most of a mismatch that is told.
const WHAT_CHARS_MAX: usize = 300;

/// Everything that came of a demo.
pub(super) struct Report<'a> {
    /// The folder of the files, in full.
    pub(super) input: &'a Path,
    pub(super) tasks: &'a [DemoTask],
    pub(super) outcomes: &'a BTreeMap<TaskId, DemoOutcome>,
    pub(super) verified: &'a Verified,
    pub(super) summary: &'a Summary,
    /// How much could run at once.
    pub(super) slots: u32,
}

/// Tasks counted together.
#[derive(Default)]
struct Row {
    tasks: usize,
    succeeded: usize,
    retried: usize,
    bytes: u64,
}

impl Row {
    fn count(&mut self, task: &DemoTask, outcome: Option<&DemoOutcome>) {
        self.tasks += 1;
        self.bytes += task.file.bytes;
        if let Some(outcome) = outcome {
            self.succeeded += usize::from(outcome.state == StateKind::Succeeded);
            self.retried += usize::from(outcome.tries > 1);
        }
    }

    fn cells(&self, style: &Style, kind: &str, does: &str) -> Vec<Cell> {
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
        [Cell::new(kind), Cell::new(does)]
            .into_iter()
            .chain(numbers)
            .collect()
    }
}

impl Report<'_> {
    /// The whole text.
    pub(super) fn tell(&self, style: &Style) -> String {
        let files = match self.summary.files {
            1 => "1 file".into(),
            files => format!("{files} files"),
        };
        let input = self.input.to_string_lossy();
        let mut parts = vec![format!("{files} in {}", clean(&input)), self.kinds(style)];
        if !self.verified.mismatches.is_empty() {
            parts.push(self.mismatches(style));
        }
        parts.push(self.facts(style));
        parts.join("\n\n")
    }

    /// Tells programs' owners what is wrong, beside the JSON.
    pub(super) fn tell_mismatches(&self) {
        let mismatches = &self.verified.mismatches;
        for mismatch in mismatches.iter().take(MISMATCHES_TOLD_MAX) {
            let (file, what) = (mismatch.file.to_string_lossy(), &mismatch.what);
            eprintln!(
                "mismatch: {}: {}",
                clean(&file),
                short(what, WHAT_CHARS_MAX)
            );
        }
        let more = mismatches.len().saturating_sub(MISMATCHES_TOLD_MAX);
        if more > 0 {
            eprintln!("… and {more} more");
        }
    }

    fn kinds(&self, style: &Style) -> String {
        let header = [
            "KIND",
            "WHAT IT DOES",
            "TASKS",
            "SUCCEEDED",
            "RETRIED",
            "BYTES",
        ];
        let mut table = style.table(&header);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut total = Row::default();
        for kind in Kind::ALL {
            let mut row = Row::default();
            for task in self.tasks.iter().filter(|task| task.kind == kind) {
                let outcome = self.outcomes.get(&task.submit.id);
                row.count(task, outcome);
                total.count(task, outcome);
            }
            table.add_row(row.cells(style, kind.name(), kind.info()));
        }
        table.add_row(total.cells(style, "total", ""));
        output::text(&table)
    }

    fn mismatches(&self, style: &Style) -> String {
        let mut table = style.table(&["FILE", "WHAT IS WRONG"]);
        let mismatches = &self.verified.mismatches;
        for mismatch in mismatches.iter().take(MISMATCHES_TOLD_MAX) {
            let file = mismatch.file.strip_prefix(self.input);
            let file = file.unwrap_or(&mismatch.file).to_string_lossy();
            table.add_row([&*clean(&file), &*short(&mismatch.what, WHAT_CHARS_MAX)]);
        }
        let mut text = output::text(&table);
        let more = mismatches.len().saturating_sub(MISMATCHES_TOLD_MAX);
        if more > 0 {
            text.push_str(&format!("\n… and {more} more"));
        }
        text
    }

    fn facts(&self, style: &Style) -> String {
        let elapsed = Duration::from_millis(self.summary.elapsed_ms);
        let mut facts = vec![("elapsed", Cell::new(pace(self.tasks.len(), elapsed)))];
        let late_ms = self.late_ms();
        if let Some(kept) = kept_to_time(&late_ms, self.tasks.len(), self.slots) {
            let is_early = late_ms.iter().any(|late_ms| *late_ms < 0);
            let cell = match is_early {
                true => style.coloured(&kept, Color::Red),
                false => Cell::new(kept),
            };
            facts.push(("scheduled", cell));
        }
        let planned = self.tasks.iter().filter(|task| task.expected.retried);
        let planned = planned.count();
        if planned > 0 {
            let retried = self.summary.retried;
            let text = match planned {
                1 => format!("{retried} of 1 task that had to fail once"),
                planned => format!("{retried} of {planned} tasks that had to fail once"),
            };
            facts.push(("retried", Cell::new(text)));
        }
        let changed = self.verified.changed.len();
        if changed > 0 {
            let text = format!("{changed} of the files meanwhile, which proves nothing either way");
            facts.push(("changed", style.coloured(&text, Color::Yellow)));
        }
        let verdict = match self.verified.mismatches.len() {
            0 => style.coloured(
                "all right: every result was computed again and is the same",
                Color::Green,
            ),
            1 => style.coloured("1 mismatch", Color::Red),
            wrong => style.coloured(&format!("{wrong} mismatches"), Color::Red),
        };
        facts.push(("verified", verdict));
        output::text(&style.pairs(&facts))
    }

    /// How late each task with a due time began, in order.
    fn late_ms(&self) -> Vec<i64> {
        let scheduled = self
            .tasks
            .iter()
            .filter(|task| task.submit.run_at.is_some());
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

/// How tasks kept to their due time; `late_ms` is in order.
fn kept_to_time(late_ms: &[i64], tasks: usize, slots: u32) -> Option<String> {
    let (first, last) = (*late_ms.first()?, *late_ms.last()?);
    let after = |late_ms: i64| span(Duration::from_millis(late_ms.unsigned_abs()));
    let scheduled = late_ms.len();
    if first < 0 {
        let early = late_ms.iter().filter(|late_ms| **late_ms < 0).count();
        let text = format!(
            "{early} of {scheduled} began before their time, by up to {}",
            after(first)
        );
        return Some(text);
    }
    let mut text = match scheduled {
        1 => format!("1 task, begun {} after its time", after(first)),
        _ => format!(
            "{scheduled} tasks, begun {} to {} after their time, none before",
            after(first),
            after(last)
        ),
    };
    if last >= 1_000 {
        text.push_str(&format!(" ({tasks} tasks on {slots} slots)"));
    }
    Some(text)
}

fn pace(tasks: usize, elapsed: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "nobody runs 2^53 tasks")]
    let rate = tasks as f64 / elapsed.as_secs_f64().max(0.001);
    let digits = usize::from(rate < 10.0);
    format!("{:.1} s, {rate:.digits$} tasks/s", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_tasks_kept_to_their_time_is_told_for_one_for_many_and_for_early_ones() {
        let told = |late_ms: &[i64]| kept_to_time(late_ms, 60, 8).unwrap_or_default();
        assert_eq!(told(&[]), "");
        assert_eq!(told(&[8]), "1 task, begun 8 ms after its time");
        assert_eq!(
            told(&[0, 3, 40]),
            "3 tasks, begun 0 ms to 40 ms after their time, none before"
        );
        assert!(
            told(&[0, 14_000])
                .ends_with("14 s after their time, none before (60 tasks on 8 slots)")
        );
        assert_eq!(
            told(&[-2, -1, 9]),
            "2 of 3 began before their time, by up to 2 ms"
        );
    }

    #[test]
    fn the_pace_is_told_in_seconds() {
        assert_eq!(pace(12, Duration::from_millis(1_054)), "1.1 s, 11 tasks/s");
        assert_eq!(pace(4, Duration::from_secs(9)), "9.0 s, 0.4 tasks/s");
        assert_eq!(pace(1, Duration::ZERO), "0.0 s, 1000 tasks/s");
    }
}
