//! Makes text from servers, handlers, files and arguments safe to print on a terminal.

use std::borrow::Cow;

pub(crate) use dueline_telemetry::{clean, clean_lines, clean_tables};

/// The text on one line and without unsafe characters. Line breaks become blanks.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains('\n') {
        return clean(text);
    }
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    Cow::Owned(clean(&lines.join(" ")).into_owned())
}

/// The text without unsafe characters, cut to at most `chars_max` characters.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    let text = clean(text);
    if text.chars().count() <= chars_max {
        return text.into_owned();
    }
    let mut cut: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_cut_texts_have_no_unsafe_characters() {
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(one_line("a\n  b\u{202e}\n"), "a b\\u{202e}");
    }
}
