//! What somebody may have meant.

/// The known name that needs the fewest edits, when these are few enough to be a slip.
pub(super) fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = (text.chars().count() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|name| (edits(text, name), name))
        .filter(|(edits, _)| *edits <= edits_max)
        .min()
        .map(|(_, name)| name)
}

/// The known setting that was meant by a dotted `key`: a slip of the pen, or the right name in the wrong section.
pub(super) fn nearest_key<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let last = |key: &'_ str| key.rsplit('.').next().map(str::to_owned);
    nearest(key, known.iter().copied())
        .or_else(|| known.iter().copied().find(|name| last(name) == last(key)))
        .or_else(|| {
            let wanted = last(key)?;
            known
                .iter()
                .copied()
                .find(|name| last(name).is_some_and(|name| edits(&name, &wanted) <= 2))
        })
}

/// Levenshtein distance: insertions, deletions and replacements of single characters.
pub(super) fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("listen", "lissten"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn a_slip_and_a_wrong_section_are_both_understood() {
        let known = ["server.listen", "worker.name", "log.level"];
        assert_eq!(nearest_key("server.lissten", &known), Some("server.listen"));
        assert_eq!(nearest_key("worker.listen", &known), Some("server.listen"));
        assert_eq!(nearest_key("lisen", &known), Some("server.listen"));
        assert_eq!(nearest_key("completely.else", &known), None);
    }
}
