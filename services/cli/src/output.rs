//! Standard output and standard error: tables and lines for people, or JSON with `--json`.
//!
//! Everything that the program prints passes here. Text for people is escaped, so that neither stored data nor an argument
//! can steer the terminal, and a closed output never causes a panic.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write as _},
};

use comfy_table::{
    Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, presets,
};
use dueline_domain::{StateKind, Timestamp};

use crate::{
    client::JsonAnswer,
    exit::CliError,
    fit::{Fit, GAP},
    sanitize::{clean_lines, clean_tables},
    units,
};

/// The narrowest terminal that a table is fitted to.
const WIDTH_MIN: u16 = 60;

/// How standard output and progress bars are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    is_json: bool,
    is_terminal: bool,
    draws_progress: bool,
    colours: bool,
}

/// How a table is rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableStyle {
    /// Whether colours may be used.
    pub(crate) colours: bool,
    /// Whether lines must fit the terminal.
    pub(crate) fit: bool,
    /// The current time, to which relative times refer.
    pub(crate) now: Timestamp,
}

impl Output {
    /// Colours and progress bars on a terminal only, and no colours where `NO_COLOR` is set.
    pub(crate) fn detect(json: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_terminal = io::stdout().is_terminal();
        Self {
            is_json: json,
            is_terminal,
            draws_progress: io::stderr().is_terminal(),
            colours: is_terminal && !no_color,
        }
    }

    /// Whether `--json` is set.
    pub(crate) const fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether a progress bar may be drawn on standard error.
    pub(crate) const fn draws_progress(&self) -> bool {
        self.draws_progress
    }

    /// How a table is rendered at time `now`.
    pub(crate) const fn style(&self, now: Timestamp) -> TableStyle {
        TableStyle {
            colours: self.colours,
            fit: self.is_terminal,
            now,
        }
    }

    /// Writes a result: the document `answer` unchanged with `--json`, else the text that `render` returns.
    pub(crate) fn show(
        &self,
        answer: &JsonAnswer,
        now: Timestamp,
        render: impl FnOnce(&TableStyle) -> Result<String, CliError>,
    ) -> Result<(), CliError> {
        if self.is_json {
            return self.verbatim(answer.as_str());
        }
        self.tables(&render(&self.style(now))?)
    }

    /// Writes `text`, which may hold several lines, and a line break.
    pub(crate) fn line(&self, text: &str) -> Result<(), CliError> {
        self.verbatim(&clean_lines(text))
    }

    /// As [`Output::line`], for a text with tables, which may have colours.
    pub(crate) fn tables(&self, text: &str) -> Result<(), CliError> {
        if self.colours {
            self.verbatim(&clean_tables(text))
        } else {
            self.line(text)
        }
    }

    /// Writes a text for programs, such as JSON or a script, byte for byte, and a line break.
    pub(crate) fn verbatim(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.write_all(b"\n")?;
        Ok(stdout.flush()?)
    }
}

impl TableStyle {
    /// A table with a header and without borders, so that other programs can split it into columns.
    pub(crate) fn table(&self, header: &[&str]) -> Table {
        let mut table = self.plain();
        table.set_header(header.iter().map(|name| {
            let cell = Cell::new(name);
            if self.colours {
                cell.add_attribute(Attribute::Bold)
            } else {
                cell
            }
        }));
        table
    }

    /// A table with one row for each name and value.
    pub(crate) fn pairs(&self, pairs: &[(&str, Cell)]) -> Table {
        let mut table = self.plain();
        for (name, value) in pairs {
            let name = Cell::new(name);
            let name = if self.colours {
                name.add_attribute(Attribute::Dim)
            } else {
                name
            };
            table.add_row([name, value.clone()]);
        }
        table
    }

    fn plain(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if self.fit {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            // Without colours, the table does not ask the terminal for its width.
            if let Some(width) = Table::new().width() {
                table.set_width(width);
            }
        }
        if self.colours {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }

    /// A state in its colour.
    pub(crate) fn state(&self, state: StateKind) -> Cell {
        let colour = match state {
            StateKind::Succeeded => Color::Green,
            StateKind::Failed | StateKind::Trashed => Color::Red,
            StateKind::Retriable => Color::Yellow,
            StateKind::Claimed | StateKind::Processing => Color::Cyan,
            StateKind::Cancelled | StateKind::Dropped => Color::DarkGrey,
            StateKind::Waiting | StateKind::New | StateKind::Enqueued => return Cell::new(state),
        };
        self.coloured(state.name(), colour)
    }

    /// A text in a colour, or plain where colours are off.
    pub(crate) fn coloured(&self, text: &str, colour: Color) -> Cell {
        let cell = Cell::new(clean_lines(text));
        if self.colours { cell.fg(colour) } else { cell }
    }

    /// A time relative to now.
    pub(crate) fn when(&self, at: impl Into<Timestamp>) -> String {
        units::relative(at.into(), self.now)
    }
}

/// Prints a line for people to standard error. A closed terminal must not end the process in the middle of its shutdown,
/// so errors are ignored.
pub(crate) fn note(text: &str) {
    document(&clean_lines(text));
}

/// As [`note`], for a JSON document.
pub(crate) fn document(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The table as text, without trailing blanks. The first column holds names and is never wrapped, so that a name can be
/// copied. A terminal that is too narrow wraps the others.
pub(crate) fn text(table: &Table) -> String {
    fitted(table, None)
}

/// As [`text`], for a table that is fitted by its columns.
pub(crate) fn list(table: &Table, fit: Fit) -> String {
    fitted(table, Some(fit))
}

fn fitted(table: &Table, fit: Option<Fit>) -> String {
    let mut table = table.clone();
    for row in table.row_iter_mut() {
        escape(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    // A terminal that reports so small a width does not know its width. Cells of one letter would be unreadable.
    if table.width().is_some_and(|width| width < WIDTH_MIN) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    let is_disabled = matches!(table.content_arrangement(), ContentArrangement::Disabled);
    if let (false, Some(width), Some(fit)) = (is_disabled, table.width(), fit) {
        fit.apply(&mut table, width);
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Replaces the cells of a row that hold characters which a terminal must not get. They lose their colour.
fn escape(row: &mut Row) {
    let is_safe = |cell: &Cell| matches!(clean_lines(&cell.content()), Cow::Borrowed(_));
    if row.cell_iter().all(is_safe) {
        return;
    }
    let cells = row.cell_iter().map(|cell| match is_safe(cell) {
        true => cell.clone(),
        false => Cell::new(clean_lines(&cell.content())),
    });
    *row = Row::from(cells.collect::<Vec<Cell>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TableStyle = TableStyle {
        colours: false,
        fit: false,
        now: Timestamp::EPOCH,
    };

    #[test]
    fn a_table_without_colours_is_plain_text_in_columns() {
        let mut table = PLAIN.table(&["NAME", "STATE"]);
        table.add_row([Cell::new("a"), PLAIN.state(StateKind::Failed)]);
        let text = text(&table);
        assert!(!text.contains('\u{1b}'));
        let lines: Vec<_> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(lines, [["NAME", "STATE"], ["a", "failed"]]);
    }

    #[test]
    fn in_a_narrow_terminal_the_first_column_stays_whole() {
        let mut table = TableStyle { fit: true, ..PLAIN }.table(&["TASK", "ERROR"]);
        let name = "send-mail/0197b0c4-0000-7000-8000-000000000001";
        table.add_row([name, &"many words ".repeat(20)]);
        for (width, lines_min) in [(80, 5), (60, 5), (0, 2)] {
            table.set_width(width);
            let text = text(&table);
            assert!(text.contains(name), "{text}");
            assert!(text.lines().count() >= lines_min, "{text}");
            assert!(
                width == 0
                    || text
                        .lines()
                        .all(|line| line.chars().count() <= width.into())
            );
        }
    }

    #[test]
    fn states_have_colours_where_colours_are_on() {
        let style = TableStyle {
            colours: true,
            ..PLAIN
        };
        let mut table = style.table(&["STATE"]);
        table.add_row([style.state(StateKind::Failed)]);
        assert!(text(&table).contains('\u{1b}'));
    }
}
