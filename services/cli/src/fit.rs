//! Fits tables with one row per item into the width of the terminal.

use comfy_table::{
    ColumnConstraint::{Absolute, ContentWidth, Hidden},
    ContentArrangement, Table, Width,
};

/// Columns are separated by two blanks.
pub(crate) const GAP: u16 = 2;
/// The narrowest column of texts. In a narrower one, words would be broken.
const TEXT_WIDTH_MIN: u16 = 12;

/// What becomes narrower or is left out when a table is too wide. All other columns stay whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Columns with texts, which may be shortened.
    pub(crate) texts: &'static [&'static str],
    /// Columns that are left out while there is too little room, in this order.
    pub(crate) drops: &'static [&'static str],
    /// Whether each row takes one line, and longer texts are cut. Otherwise they are wrapped between words.
    pub(crate) cuts: bool,
}

/// A column of the table.
struct Column {
    name: String,
    /// The width of its longest cell.
    content: u16,
    is_text: bool,
    is_dropped: bool,
}

impl Column {
    /// The width that the column must have.
    fn width_min(&self) -> u16 {
        if self.is_text {
            let header = u16::try_from(self.name.chars().count()).unwrap_or(u16::MAX);
            self.content.min(header.max(TEXT_WIDTH_MIN))
        } else {
            self.content
        }
    }
}

impl Fit {
    /// Makes the table at most `width` wide, if its columns allow it.
    pub(crate) fn apply(&self, table: &mut Table, width: u16) {
        let mut columns = self.columns(table);
        // The last column needs no gap behind it.
        let room = width.saturating_add(GAP);
        let total = |columns: &[Column], width: fn(&Column) -> u16| {
            let kept = columns.iter().filter(|column| !column.is_dropped);
            kept.fold(0_u16, |sum, column| sum.saturating_add(width(column) + GAP))
        };
        table.set_content_arrangement(ContentArrangement::Disabled);
        if total(&columns, |column| column.content) <= room {
            return;
        }
        for name in self.drops {
            if total(&columns, Column::width_min) <= room {
                break;
            }
            for column in columns.iter_mut().filter(|column| column.name == *name) {
                column.is_dropped = true;
            }
        }
        let mut spare = room.saturating_sub(total(&columns, Column::width_min));
        for (index, column) in columns.iter().enumerate() {
            let constraint = if column.is_dropped {
                Hidden
            } else if column.is_text {
                let more = spare.min(column.content - column.width_min());
                spare -= more;
                Absolute(Width::Fixed(column.width_min() + more + GAP))
            } else {
                ContentWidth
            };
            if let Some(column) = table.column_mut(index) {
                column.set_constraint(constraint);
            }
        }
        if self.cuts {
            table.set_truncation_indicator("…");
            for row in table.row_iter_mut() {
                row.max_height(1);
            }
        }
    }

    fn columns(&self, table: &Table) -> Vec<Column> {
        let names = table
            .header()
            .into_iter()
            .flat_map(|header| header.cell_iter());
        let names = names.map(|cell| cell.content());
        let columns = names.zip(table.column_max_content_widths());
        columns
            .map(|(name, content)| Column {
                is_text: self.texts.contains(&&*name),
                is_dropped: false,
                name,
                content,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::Timestamp;

    use crate::output::{self, TableStyle};

    use super::*;

    const FIT: Fit = Fit {
        texts: &["NAME", "ERROR"],
        drops: &["TRIES", "NAME", "DUE"],
        cuts: true,
    };
    const TASK: &str = "send-mail/0197b0c4-0000-7000-8000-000000000001";

    fn listed(width: u16, fit: Fit) -> String {
        let style = TableStyle {
            colours: false,
            fit: true,
            now: Timestamp::EPOCH,
        };
        let mut table = style.table(&["TASK", "STATE", "DUE", "TRIES", "NAME", "ERROR"]);
        let error = "exit status: 1: something went wrong with a longer text";
        table.add_row([TASK, "succeeded", "in 5 s", "1", "日本語の長い名前", error]);
        output::list(table.set_width(width), fit)
    }

    #[test]
    fn in_a_narrow_terminal_columns_are_left_out_and_texts_cut_but_no_word_is_broken() {
        for (width, header) in [
            (160, "TASK STATE DUE TRIES NAME ERROR"),
            (120, "TASK STATE DUE TRIES NAME ERROR"),
            (80, "TASK STATE DUE ERROR"),
            (60, "TASK STATE ERROR"),
        ] {
            let text = listed(width, FIT);
            let lines: Vec<&str> = text.lines().collect();
            let names: Vec<_> = lines[0].split_whitespace().collect();
            assert_eq!(names.join(" "), header, "{text}");
            assert_eq!(lines.len(), 2, "{text}");
            assert!(
                lines[1].starts_with(TASK) && lines[1].contains("succeeded"),
                "{text}"
            );
            if width > 60 {
                assert!(
                    lines
                        .iter()
                        .all(|line| line.chars().count() <= width.into()),
                    "{text}"
                );
            }
        }
        assert!(listed(160, FIT).ends_with("with a longer text"));
        assert!(listed(120, FIT).ends_with('…'));
    }

    #[test]
    fn texts_that_are_not_cut_are_wrapped_between_words() {
        let text = listed(100, Fit { cuts: false, ..FIT });
        assert!(text.lines().count() > 2 && !text.contains('…'), "{text}");
        for word in ["something", "wrong", "longer"] {
            assert!(text.contains(word), "{text}");
        }
    }
}
