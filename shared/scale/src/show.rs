//! The text form of a plan.

use std::fmt::{self, Display, Formatter};

use crate::{CellPlan, Plan};

/// A number with its significant digits, grouped by thousands.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        small if small < 0.1 => 4,
        small if small < 10.0 => 2,
        some if some < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        let left = whole.len() - i;
        if i > 0 && left % 3 == 0 && digit.is_ascii_digit() {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// As [`number`], without trailing zeros.
fn short(value: f64) -> String {
    let text = number(value);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn percent(share: f64) -> String {
    format!("{} %", short((share * 1_000.0).round() / 10.0))
}

fn usd(value: f64) -> String {
    if value < 0.10 {
        format!("$ {value:.3}")
    } else if value < 1_000.0 {
        format!("$ {value:.2}")
    } else {
        format!("$ {}", number(value))
    }
}

fn row(f: &mut Formatter<'_>, name: &str, cells: [&str; 3]) -> fmt::Result {
    let [a, b, c] = cells;
    let line = format!("{name:<28}{a:>14}{b:>16}{c:>22}");
    writeln!(f, "{}", line.trim_end())
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let load = &self.load;
        writeln!(
            f,
            "{} tasks/s (peak {}), {} jobs, {} B payload, {} s runs, {} with a date",
            short(load.tasks_per_s),
            short(load.peak_tasks_per_s()),
            load.jobs + load.idle_jobs,
            load.payload_bytes,
            short(load.run_s),
            percent(load.scheduled),
        )?;
        writeln!(f)?;
        row(f, "", ["per task", "per second", "per month"])?;
        let (task, second, month) = (&self.per_task, &self.per_second, &self.per_month);
        let lines = [
            (
                "write units, table",
                task.base_wru,
                second.base_wru,
                month.base_wru,
            ),
            (
                "write units, index",
                task.index_wru,
                second.index_wru,
                month.index_wru,
            ),
            ("read units", task.rru, second.rru, month.rru),
            (
                "SQS requests",
                task.sqs_requests,
                second.sqs_requests,
                month.sqs_requests,
            ),
        ];
        for (name, task, second, month) in lines {
            row(f, name, [&number(task), &number(second), &number(month)])?;
        }
        writeln!(f)?;
        let (bill, tasks) = (
            &self.month_usd,
            month.base_wru > 0.0 && load.tasks_per_s > 0.0,
        );
        let millions = load.tasks_per_s * crate::plan::MONTH_S / 1e6;
        let each = |value: f64| {
            if tasks {
                usd(value / millions)
            } else {
                String::new()
            }
        };
        row(f, "", ["", "per million", "per month"])?;
        let lines = [
            ("writes", bill.writes),
            ("reads", bill.reads),
            ("SQS", bill.sqs),
            ("storage and backup", bill.storage),
            ("total", bill.total),
        ];
        for (name, value) in lines {
            row(f, name, ["", &each(value), &usd(value)])?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "a job without tasks     {} a month",
            usd(self.idle_job_usd)
        )?;
        writeln!(
            f,
            "busiest job needs       {} due shards, {} slots (the table has {})",
            self.shards, self.slots, load.slots
        )?;
        writeln!(f, "consumers               {}", self.consumers)?;
        let warm = if self.warm_up {
            "needed: a new table takes less than this"
        } else {
            "not needed"
        };
        writeln!(f, "warming up the table    {warm}")?;
        for (i, limit) in self.limits.iter().take(3).enumerate() {
            let name = if i == 0 { "first limit" } else { "then" };
            writeln!(
                f,
                "{name:<24}{} at {} tasks/s ({} used): {}",
                limit.name,
                short(limit.at_tasks_per_s),
                percent(limit.used),
                limit.fix
            )?;
        }
        Ok(())
    }
}

impl Display for CellPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cells = if self.cells == 1 { "cell" } else { "cells" };
        writeln!(
            f,
            "{} {cells} of {} tasks/s each; one takes {} at most, bounded by {}",
            self.cells,
            short(self.tasks_per_s),
            short(self.tasks_per_s_max),
            self.bound
        )?;
        if !self.busiest_job_fits {
            writeln!(
                f,
                "the busiest job does not fit into a cell: make several jobs of it"
            )?;
        }
        Ok(())
    }
}
