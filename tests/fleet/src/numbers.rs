//! Values of JSON documents.

use serde_json::Value;

/// The string of a value.
#[track_caller]
pub fn text(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("{value} is not a string"))
        .to_owned()
}

/// The time of a value, in milliseconds since the Unix epoch.
#[track_caller]
pub fn millis(value: &Value) -> i64 {
    let time = text(value).parse::<jiff::Timestamp>();
    time.unwrap_or_else(|_| panic!("{value} is not a time"))
        .as_millisecond()
}

/// The number of a value.
#[track_caller]
pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

/// How late a task began, in milliseconds: the start of its first stored run minus its due time.
#[track_caller]
pub fn late_ms(task: &Value) -> i64 {
    millis(&task["runs"][0]["started_at"]) - millis(&task["run_at"])
}

/// The smallest value that at least this `part` of all values does not exceed.
#[track_caller]
pub fn percentile(values: impl IntoIterator<Item = i64>, part: f64) -> i64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable();
    let rank = (values.len() as f64 * part).ceil() as usize;
    values[rank.clamp(1, values.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        assert_eq!(percentile(1..=100, 0.95), 95);
        assert_eq!(percentile([7], 0.95), 7);
        assert_eq!(percentile([3, 1, 2], 0.5), 2);
    }
}
