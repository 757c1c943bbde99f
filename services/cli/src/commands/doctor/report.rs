//! The report of all findings, as a table or as JSON.

use comfy_table::{Cell, Color};
use dueline_backends::doctor::{Finding, State};
use serde::Serialize;

use crate::{
    client::JsonAnswer,
    context::Context,
    exit::CliError,
    output::{self, TableStyle},
    sanitize::{clean, one_line},
};

/// The order of the areas. Findings in a later area often follow from findings in an earlier one.
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

/// All findings and their counts, as `--json` prints them.
#[derive(Serialize)]
pub(super) struct DoctorReport {
    defects: usize,
    warnings: usize,
    unknown: usize,
    ok: usize,
    findings: Vec<ReportedFinding>,
}

/// One finding.
#[derive(Serialize)]
struct ReportedFinding {
    area: &'static str,
    name: String,
    state: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl DoctorReport {
    pub(super) fn new(mut findings: Vec<Finding>) -> Self {
        let position = |finding: &Finding| AREAS.iter().position(|area| *area == finding.area);
        findings.sort_by_key(|finding| position(finding).unwrap_or(AREAS.len()));
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
            findings: findings.into_iter().map(ReportedFinding::from).collect(),
        }
    }

    pub(super) const fn has_defects(&self) -> bool {
        self.defects > 0
    }

    pub(super) fn show(&self, context: &Context) -> Result<(), CliError> {
        let answer = JsonAnswer::of(self);
        context
            .output
            .show(&answer, context.now(), |style| Ok(self.render(style)))
    }

    fn render(&self, style: &TableStyle) -> String {
        let mut table = style.table(&["STATE", "AREA", "NAME", "DETAIL"]);
        for finding in &self.findings {
            let state = match finding.state {
                "defect" => style.coloured("defect", Color::Red),
                "warning" => style.coloured("warning", Color::Yellow),
                "ok" => style.coloured("ok", Color::Green),
                other => style.coloured(other, Color::DarkGrey),
            };
            let mut detail = one_line(&finding.detail).into_owned();
            if let Some(fix) = &finding.fix {
                detail.push_str("\nfix: ");
                detail.push_str(&one_line(fix));
            }
            table.add_row([
                state,
                Cell::new(finding.area),
                Cell::new(clean(&finding.name)),
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

impl From<Finding> for ReportedFinding {
    fn from(finding: Finding) -> Self {
        Self {
            area: finding.area,
            name: finding.name,
            state: finding.state.name(),
            detail: finding.detail,
            fix: finding.fix,
        }
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::Timestamp;

    use super::*;

    #[test]
    fn g_18_the_table_shows_each_finding_with_its_fix_below_and_the_counts_at_the_end() {
        let report = DoctorReport::new(vec![
            Finding::ok("backlog", "all", "nothing is late"),
            Finding::defect("table", "t", "it does\nnot exist", "make \u{1b}it"),
            Finding::warning("settings", "s", "odd", "change it"),
        ]);
        assert!(report.has_defects());
        let style = TableStyle {
            colours: false,
            fit: false,
            now: Timestamp::EPOCH,
        };
        let text = report.render(&style);
        let words: Vec<_> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            words,
            [
                "STATE AREA NAME DETAIL",
                "warning settings s odd",
                "fix: change it",
                "defect table t it does not exist",
                "fix: make \\u{1b}it",
                "ok backlog all nothing is late",
                "",
                "defects 1, warnings 1, unknown 0, ok 1",
            ]
        );
    }
}
