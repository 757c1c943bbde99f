//! Makes text from users, handlers, files and servers safe to print: in log lines and on terminals.

use std::{borrow::Cow, fmt::Write as _};

/// Whether a character changes how a terminal shows the text around it: control characters, marks of the direction of
/// writing, line separators, and characters without a width that can hide in a name.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// The text with every unsafe character written as an escape, as in `\u{202e}` or `\n`.
pub fn clean(text: &str) -> Cow<'_, str> {
    clean_except(text, |_| false)
}

/// As [`clean`], for several lines.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    clean_except(text, |c| c == '\n')
}

/// As [`clean_lines`], for a text that contains tables: the sequences that set colours remain.
pub fn clean_tables(text: &str) -> Cow<'_, str> {
    clean_coloured(text, clean_lines)
}

fn clean_coloured(text: &str, clean: impl Fn(&str) -> Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return clean(text);
    }
    let mut parts = text.split('\u{1b}');
    let mut cleaned = clean(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        cleaned.push_str(if sets_colour(part) {
            "\u{1b}"
        } else {
            "\\u{1b}"
        });
        cleaned.push_str(&clean(part));
    }
    Cow::Owned(cleaned)
}

/// Whether a text that follows an escape character is a sequence that sets colours, as in `[38;5;9m`.
fn sets_colour(text: &str) -> bool {
    let digits = text.strip_prefix('[').and_then(|rest| rest.split_once('m'));
    digits.is_some_and(|(digits, _)| {
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b';')
    })
}

/// As [`clean_tables`], for one line.
pub(crate) fn clean_line(text: &str) -> Cow<'_, str> {
    clean_coloured(text, clean)
}

/// A JSON text in which every unsafe character of a string is an escape of JSON.
pub(crate) fn clean_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_unsafe(c) {
            cleaned.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(cleaned, "\\u{unit:04x}");
        }
    }
    Cow::Owned(cleaned)
}

fn clean_except(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe(c) && !stays(c)) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if stays(c) || !is_unsafe(c) => cleaned.push(c),
            // The same as Rust and JSON for line breaks and tabs, and `\u{1b}` for all others.
            '\n' | '\r' | '\t' => cleaned.extend(c.escape_default()),
            c => cleaned.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_escaped_visibly() {
        assert_eq!(clean("plain, größer, 日本, 👩‍🚀"), "plain, größer, 日本, 👩‍🚀");
        assert_eq!(clean("a\u{1b}[31mred\nline\t"), "a\\u{1b}[31mred\\nline\\t");
        for c in [
            '\u{202e}',
            '\u{2066}',
            '\u{9b}',
            '\u{7f}',
            '\u{200f}',
            '\u{2028}',
            '\u{e0041}',
        ] {
            let cleaned = clean(&format!("a{c}b")).into_owned();
            assert_eq!(cleaned, format!("a\\u{{{:x}}}b", u32::from(c)));
        }
        assert_eq!(clean_lines("a\nb\u{1b}[1m"), "a\nb\\u{1b}[1m");
    }

    #[test]
    fn colours_of_tables_stay_and_other_sequences_do_not() {
        let table = "\u{1b}[1mTASK\u{1b}[0m\n\u{1b}[38;5;9mfailed\u{1b}[39m";
        assert_eq!(clean_tables(table), table);
        for (unsafe_text, cleaned) in [
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{1b}[2Jm", "\\u{1b}[2Jm"),
            ("\u{1b}", "\\u{1b}"),
            ("\u{1b}[1m\u{202e}", "\u{1b}[1m\\u{202e}"),
        ] {
            assert_eq!(clean_tables(unsafe_text), cleaned);
        }
    }

    #[test]
    fn unsafe_characters_in_json_become_its_escapes() {
        let text = "{\"a\":\"x\u{202e}\u{9b}\u{e0041}y\"}";
        let cleaned = clean_json(text);
        assert_eq!(cleaned, r#"{"a":"x\u202e\u009b\udb40\udc41y"}"#);
        let before: serde_json::Value = serde_json::from_str(text).unwrap();
        let after: serde_json::Value = serde_json::from_str(&cleaned).unwrap();
        assert_eq!(before, after);
    }
}
