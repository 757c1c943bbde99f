//! What goes to standard output: tables for people, JSON for programs.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write as _},
};

use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use dueline_domain::{StateKind, Timestamp};

use crate::{client::Answer, exit::CliError, units};

/// Narrower tables are not fitted to their terminal.
const WIDTH_MIN: u16 = 60;

/// How to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    terminal: bool,
    progress: bool,
    colours: bool,
}

/// What a table for people depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether colours may be used.
    pub(crate) colours: bool,
    /// Whether lines must fit the terminal.
    pub(crate) fit: bool,
    /// The time that others are told from.
    pub(crate) now: Timestamp,
}

impl Output {
    /// Colours and progress bars only where a person looks at a terminal, and no colours where `NO_COLOR` is set.
    pub(crate) fn detect(json: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal();
        Self {
            json,
            terminal,
            progress: io::stderr().is_terminal(),
            colours: terminal && !no_color,
        }
    }

    /// Whether programs read it.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a progress bar may be drawn on standard error.
    pub(crate) const fn draws_progress(&self) -> bool {
        self.progress
    }

    /// How a table for people is written.
    pub(crate) const fn style(&self, now: Timestamp) -> Style {
        Style {
            colours: self.colours,
            fit: self.terminal,
            now,
        }
    }

    /// Writes an answer: as it is for programs, as `human` tells it for people.
    pub(crate) fn show(
        &self,
        answer: &Answer,
        now: Timestamp,
        human: impl FnOnce(&Style) -> Result<String, CliError>,
    ) -> Result<(), CliError> {
        if self.json {
            return self.line(answer.as_str());
        }
        let text = human(&self.style(now))?;
        self.line(&text)
    }

    /// Writes one line, or several.
    pub(crate) fn line(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.write_all(b"\n")?;
        Ok(stdout.flush()?)
    }
}

/// Text of others without what could steer a terminal.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match c {
        '\n' | '\t' | '\r' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    });
    Cow::Owned(shown.collect())
}

/// Cut to what a column can hold.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    let text = clean(text);
    if text.chars().count() <= chars_max {
        return text.into_owned();
    }
    let mut cut: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

impl Style {
    /// A table with a header and no lines, so that it can be read and cut into columns alike.
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

    /// Names and values below each other.
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

    /// A text in a colour, if there are any.
    pub(crate) fn coloured(&self, text: &str, colour: Color) -> Cell {
        let cell = Cell::new(text);
        if self.colours { cell.fg(colour) } else { cell }
    }

    /// A time as seen from now.
    pub(crate) fn when(&self, at: impl Into<Timestamp>) -> String {
        units::relative(at.into(), self.now)
    }
}

/// The lines of a table without blanks at their ends. The first column, which names things, is never broken, so that a
/// name can be copied.
pub(crate) fn text(table: &Table) -> String {
    let mut table = table.clone();
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    // A terminal that narrow is one that does not know its width; cells of one letter help nobody.
    if table.width().is_some_and(|width| width < WIDTH_MIN) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style {
        colours: false,
        fit: false,
        now: Timestamp::EPOCH,
    };

    #[test]
    fn escape_sequences_of_others_do_not_reach_the_terminal() {
        assert_eq!(clean("plain"), "plain");
        assert_eq!(clean("a\u{1b}[31mred\nline"), "a\u{fffd}[31mred line");
        assert_eq!(short("abcdef", 4), "abc…");
    }

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
        let mut table = Style { fit: true, ..PLAIN }.table(&["TASK", "ERROR"]);
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
    fn states_have_colours_where_these_may_be_used() {
        let style = Style {
            colours: true,
            ..PLAIN
        };
        let mut table = style.table(&["STATE"]);
        table.add_row([style.state(StateKind::Failed)]);
        assert!(text(&table).contains('\u{1b}'));
    }
}
