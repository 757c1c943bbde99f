//! Checks the fields of a cron expression one by one, so that an error names its field and its reason.
//!
//! The cron library expands the fields. It accepts more than this check does: empty items of lists, names without a
//! separator, text after a `W`. What it makes of these is not what the author of a rule meant, and a field without any
//! value costs it minutes of search.

use crate::error::{RuleError, RuleFault, RuleField};

/// What one field may contain.
struct Field {
    field: RuleField,
    min: u16,
    max: u16,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 6] = [
    Field::new(RuleField::Second, 0, 59, &[]),
    Field::new(RuleField::Minute, 0, 59, &[]),
    Field::new(RuleField::Hour, 0, 23, &[]),
    Field::new(RuleField::DayOfMonth, 1, 31, &[]),
    Field::new(RuleField::Month, 1, 12, &MONTHS),
    // 7 is Sunday, as 0 is.
    Field::new(RuleField::DayOfWeek, 0, 7, &DAYS),
];

/// The six fields of an expression in upper case, checked. An expression of five fields gets the second 0.
pub(super) fn split(expression: &str) -> Result<[String; 6], RuleError> {
    let words: Vec<_> = expression.split_ascii_whitespace().collect();
    let fields: [&str; 6] = match *words.as_slice() {
        [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
        [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
        [] => {
            let message = "must be a cron expression or '@every DURATION'";
            return Err(RuleError::new(RuleField::Timing, RuleFault::Empty, message));
        }
        _ => {
            let message = format!(
                "'{expression}' has {} fields; a cron expression has 5 (minute, hour, day of month, month, day of \
                 week) or 6 (second first)",
                words.len()
            );
            let field = RuleField::Timing;
            return Err(RuleError::new(field, RuleFault::FieldCount, message));
        }
    };
    let fields = fields.map(str::to_ascii_uppercase);
    for (field, text) in FIELDS.iter().zip(&fields) {
        field.check(text)?;
    }
    Ok(fields)
}

impl Field {
    const fn new(field: RuleField, min: u16, max: u16, names: &'static [&'static str]) -> Self {
        Self {
            field,
            min,
            max,
            names,
        }
    }

    fn check(&self, text: &str) -> Result<(), RuleError> {
        let list = match text.strip_prefix('+') {
            // The day must match both day fields.
            Some(list) if self.field == RuleField::DayOfWeek => list,
            _ => text,
        };
        let is_day = matches!(self.field, RuleField::DayOfMonth | RuleField::DayOfWeek);
        if list == "*" || is_day && list == "?" {
            return Ok(());
        }
        let items: Vec<_> = list.split(',').collect();
        // The library would match the last weekday alone.
        if items.contains(&"L") && items.contains(&"LW") {
            return self.syntax("'L' and 'LW' cannot be in one list".to_owned());
        }
        items.into_iter().try_for_each(|item| self.item(item))
    }

    /// Checks one item of a list.
    fn item(&self, item: &str) -> Result<(), RuleError> {
        if item.is_empty() {
            return self.syntax("has an empty item".to_owned());
        }
        match self.field {
            RuleField::DayOfMonth if matches!(item, "L" | "LW") => return Ok(()),
            RuleField::DayOfMonth if item.ends_with('W') => {
                return self.value(&item[..item.len() - 1], item).map(drop);
            }
            RuleField::DayOfWeek => {
                if let Some((days, which)) = item.split_once('#') {
                    if !matches!(which, "1" | "2" | "3" | "4" | "5" | "L") {
                        return self.syntax(format!("'{item}' needs 1 to 5 or L after the #"));
                    }
                    return self.range(days, item);
                }
                if let Some(day) = item.strip_suffix('L') {
                    return self.value(day, item).map(drop);
                }
            }
            _ => {}
        }
        if item == "*" {
            return self.syntax("'*' cannot be in a list".to_owned());
        }
        let Some((range, step)) = item.split_once('/') else {
            return self.range(item, item);
        };
        let step = self.number(step, item)?;
        if !(1..=self.max).contains(&step) {
            return self.out_of_range(format!("a step of {step} is not within 1 to {}", self.max));
        }
        match range {
            "*" => Ok(()),
            range if range.contains('-') => self.range(range, item),
            _ => self.syntax(format!("'{item}' needs '*' or a range before the step")),
        }
    }

    /// Checks a value, or a range of two.
    fn range(&self, range: &str, item: &str) -> Result<(), RuleError> {
        let Some((low, high)) = range.split_once('-') else {
            return self.value(range, item).map(drop);
        };
        let low = self.value(low, item)?;
        let high = match high {
            // As the end of a range, Sunday is the last day of the week.
            "SUN" if self.field == RuleField::DayOfWeek => 7,
            high => self.value(high, item)?,
        };
        if low > high {
            return self.out_of_range(format!("the range '{range}' does not go upwards"));
        }
        Ok(())
    }

    /// Checks a number or a name.
    fn value(&self, text: &str, item: &str) -> Result<u16, RuleError> {
        if let Some(position) = self.names.iter().position(|name| *name == text) {
            return Ok(u16::try_from(position).unwrap_or(u16::MAX) + self.min);
        }
        let value = self.number(text, item)?;
        if !(self.min..=self.max).contains(&value) {
            return self.out_of_range(format!(
                "{value} is not within {} to {}",
                self.min, self.max
            ));
        }
        Ok(value)
    }

    fn number(&self, text: &str, item: &str) -> Result<u16, RuleError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.syntax(format!("'{item}' is not understood"));
        }
        match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.out_of_range(format!("{text} is too large")),
        }
    }

    fn syntax<T>(&self, message: String) -> Result<T, RuleError> {
        Err(RuleError::new(
            self.field,
            RuleFault::InvalidSyntax,
            message,
        ))
    }

    fn out_of_range<T>(&self, message: String) -> Result<T, RuleError> {
        Err(RuleError::new(self.field, RuleFault::OutOfRange, message))
    }
}
