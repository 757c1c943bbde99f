//! Suggestions for misspelt names.

use strsim::levenshtein as edits;

/// The known name with the fewest edits, if they are few enough for a typing error.
pub(super) fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = (text.chars().count() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|name| (edits(text, name), name))
        .filter(|(edits, _)| *edits <= edits_max)
        .min()
        .map(|(_, name)| name)
}

/// The known setting nearest to a dotted `key`: a typing error, or the right name in the wrong section.
pub(super) fn nearest_key<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let last = |key: &'_ str| key.rsplit('.').next().map(str::to_owned);
    nearest(key, known.iter().copied())
        .or_else(|| known.iter().copied().find(|name| last(name) == last(key)))
        .or_else(|| {
            let given = last(key)?;
            known
                .iter()
                .copied()
                .find(|name| last(name).is_some_and(|name| edits(&name, &given) <= 2))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_and_a_wrong_section_get_a_suggestion() {
        let known = ["server.listen", "worker.name", "log.level"];
        assert_eq!(nearest_key("server.lissten", &known), Some("server.listen"));
        assert_eq!(nearest_key("worker.listen", &known), Some("server.listen"));
        assert_eq!(nearest_key("lisen", &known), Some("server.listen"));
        assert_eq!(nearest_key("completely.else", &known), None);
    }
}
