//! All findings, for people and for programs.

use comfy_table::{Cell, Color};
use dueline_backends::doctor::{Finding, State};
use serde::Serialize;

use crate::{
    cli::Context,
    client::Answer,
    exit::CliError,
    output::{self, Style, clean},
};

/// The order in which areas are told: what comes later often follows from what comes earlier.
const AREAS: [&str; 9] = [
    "settings",
    "file",
    "table",
    "queues",
    "permissions",
    "clocks",
    "processes",
    "jobs",
    "backlog",
];

#[derive(Serialize)]
pub(super) struct Report {
    defects: usize,
    warnings: usize,
    unknown: usize,
    ok: usize,
    findings: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    area: &'static str,
    name: String,
    state: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Report {
    pub(super) fn new(mut findings: Vec<Finding>) -> Self {
        let place = |finding: &Finding| AREAS.iter().position(|area| *area == finding.area);
        findings.sort_by_key(|finding| place(finding).unwrap_or(AREAS.len()));
        let count = |state| {
            findings
                .iter()
                .filter(|finding| finding.state == state)
                .count()
        };
        Self {
            defects: count(State::Defect),
            warnings: count(State::Warning),
            unknown: count(State::Unknown),
            ok: count(State::Ok),
            findings: findings.into_iter().map(Row::from).collect(),
        }
    }

    pub(super) const fn has_defects(&self) -> bool {
        self.defects > 0
    }

    pub(super) fn show(&self, context: &Context) -> Result<(), CliError> {
        let answer = Answer::of(self);
        context
            .output
            .show(&answer, context.now(), |style| Ok(self.tell(style)))
    }

    fn tell(&self, style: &Style) -> String {
        let mut table = style.table(&["STATE", "AREA", "NAME", "DETAIL"]);
        for row in &self.findings {
            let state = match row.state {
                "defect" => style.coloured("defect", Color::Red),
                "warning" => style.coloured("warning", Color::Yellow),
                "ok" => style.coloured("ok", Color::Green),
                other => style.coloured(other, Color::DarkGrey),
            };
            let mut detail = clean(&row.detail).into_owned();
            if let Some(mend) = &row.mend {
                detail.push_str("\nmend: ");
                detail.push_str(&clean(mend));
            }
            table.add_row([
                state,
                Cell::new(row.area),
                Cell::new(clean(&row.name)),
                Cell::new(detail),
            ]);
        }
        let Self {
            defects,
            warnings,
            unknown,
            ok,
            ..
        } = self;
        let table = output::text(&table);
        format!("{table}\n\ndefects {defects}, warnings {warnings}, unknown {unknown}, ok {ok}")
    }
}

impl From<Finding> for Row {
    fn from(finding: Finding) -> Self {
        Self {
            area: finding.area,
            name: finding.name,
            state: finding.state.name(),
            detail: finding.detail,
            mend: finding.mend,
        }
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::Timestamp;

    use super::*;

    #[test]
    fn g_18_people_read_each_finding_with_its_mend_below_and_the_sum_at_the_end() {
        let report = Report::new(vec![
            Finding::ok("backlog", "all", "nothing lies about"),
            Finding::defect("table", "t", "it does\nnot exist", "make \u{1b}it"),
            Finding::warning("settings", "s", "odd", "even it"),
        ]);
        assert!(report.has_defects());
        let style = Style {
            colours: false,
            fit: false,
            now: Timestamp::EPOCH,
        };
        let text = report.tell(&style);
        let words: Vec<_> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            words,
            [
                "STATE AREA NAME DETAIL",
                "warning settings s odd",
                "mend: even it",
                "defect table t it does not exist",
                "mend: make \u{fffd}it",
                "ok backlog all nothing lies about",
                "",
                "defects 1, warnings 1, unknown 0, ok 1",
            ]
        );
    }
}
