//! Makes text from servers, handlers and files safe to print.

use std::borrow::Cow;

/// The text without control characters, which could steer a terminal.
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

/// The text without control characters, cut to at most `chars_max` characters.
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
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(clean("plain"), "plain");
        assert_eq!(clean("a\u{1b}[31mred\nline"), "a\u{fffd}[31mred line");
        assert_eq!(short("abcdef", 4), "abc…");
    }
}
