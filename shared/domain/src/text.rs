//! Texts of limited length.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_only_past_the_limit_and_only_between_characters() {
        let text = "aé€😀";
        let cut: Vec<_> = (0..=11).map(|max| truncate_text(text, max).len()).collect();
        assert_eq!(cut, [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10]);
    }
}
