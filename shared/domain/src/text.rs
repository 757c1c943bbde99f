//! Texts of limited length.

use std::borrow::Cow;

/// Most characters of a word in an error message. A longer one is always part of some input.
const WORD_CHARS_MAX: usize = 200;
/// Most characters of an error message.
const MESSAGE_CHARS_MAX: usize = 2_000;
/// How many characters at the beginning of a message are kept when it is cut. With the end and the length, the message
/// is within the limit, so that the next process that passes it on does not cut it again.
const MESSAGE_START_CHARS: usize = 1_500;
/// How many characters at the end are kept: the cause is often there.
const MESSAGE_END_CHARS: usize = 400;

/// The start of `text` that has at most `bytes_max` bytes. It ends on a character boundary.
///
/// ```
/// use dueline_domain::truncate_text;
/// assert_eq!(truncate_text("café", 4), "caf");
/// assert_eq!(truncate_text("café", 5), "café");
/// ```
pub fn truncate_text(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// An error message of bounded length, whatever input it quotes: each word has at most 200 characters and the message
/// about 2,000. Where something is left out, the original length is given.
///
/// ```
/// use dueline_domain::bounded_message;
/// let message = format!("unknown state '{}'; known are new, failed", "x".repeat(100_000));
/// let expected = format!("unknown state '{}… (100003 characters)'; known are new, failed", "x".repeat(198));
/// assert_eq!(bounded_message(&message), expected);
/// ```
pub fn bounded_message(message: &str) -> Cow<'_, str> {
    // Most messages are shorter than a single word may be.
    if message.len() <= WORD_CHARS_MAX {
        return Cow::Borrowed(message);
    }
    let mut bounded = String::new();
    for part in message.split_inclusive(char::is_whitespace) {
        push_word(&mut bounded, part);
    }
    let len = bounded.chars().count();
    if len > MESSAGE_CHARS_MAX {
        let start = skip_chars(&bounded, MESSAGE_START_CHARS);
        let end = skip_chars(&bounded, len - MESSAGE_END_CHARS);
        let all = message.chars().count();
        bounded = format!(
            "{}… ({all} characters) …{}",
            &bounded[..start],
            &bounded[end..]
        );
    }
    Cow::Owned(bounded)
}

/// Appends a word with the blank after it. Of a long word, the punctuation at the end is kept: it belongs to the message.
fn push_word(bounded: &mut String, word_and_blank: &str) {
    let word = word_and_blank.trim_end();
    let len = word.chars().count();
    if len <= WORD_CHARS_MAX {
        bounded.push_str(word_and_blank);
        return;
    }
    let is_mark = |c: &char| c.is_ascii_punctuation();
    let marks = word.chars().rev().take_while(is_mark).take(3).count();
    bounded.push_str(&word[..skip_chars(word, WORD_CHARS_MAX - 1)]);
    bounded.push_str(&format!("… ({len} characters)"));
    bounded.push_str(&word[skip_chars(word, len - marks)..]);
    bounded.push_str(&word_and_blank[word.len()..]);
}

/// The index of the character with this number, from 0.
fn skip_chars(text: &str, number: usize) -> usize {
    text.char_indices()
        .nth(number)
        .map_or(text.len(), |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_bounded_whatever_it_quotes() {
        for short in ["", "job: unknown", &"é".repeat(200), &"ab ".repeat(100)] {
            assert_eq!(bounded_message(short), short);
        }
        let path = format!("cannot read ./{}: it is a folder", "x".repeat(300));
        let bounded = bounded_message(&path);
        assert!(bounded.starts_with("cannot read ./xxx"), "{bounded}");
        assert!(
            bounded.ends_with("x… (303 characters): it is a folder"),
            "{bounded}"
        );
        // Input with blanks is bounded with the whole message, which keeps its end.
        let blanks = format!("'{}' is not a duration", "é ".repeat(50_000));
        let bounded = bounded_message(&blanks);
        assert!(bounded.chars().count() <= 2_000, "{bounded}");
        assert!(bounded.contains(" (100020 characters) "), "{bounded}");
        assert!(bounded.ends_with("' is not a duration"), "{bounded}");
        for bounded in [&bounded, &bounded_message(&path)] {
            assert_eq!(bounded_message(bounded), *bounded, "cut once");
        }
    }

    #[test]
    fn a_text_is_cut_only_past_the_limit_and_only_between_characters() {
        let text = "aé€😀";
        let cut: Vec<_> = (0..=11).map(|max| truncate_text(text, max).len()).collect();
        assert_eq!(cut, [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10]);
    }
}
