//! Cron expressions.

mod calendar;
mod fields;
mod search;

use croner::parser::{CronParser, Seconds, Year};

use self::calendar::Calendar;
use crate::{
    error::{RuleError, RuleFault, RuleField},
    zone::Zone,
};

/// Names that stand for expressions.
const NAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * SUN"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A cron expression in a time zone.
#[derive(Clone, Debug)]
pub(crate) struct Cron {
    calendar: Calendar,
    zone: Zone,
    /// Whether the fields of second, minute and hour are without `*`; see `search.rs`.
    is_fixed: bool,
}

impl Cron {
    /// Parses an expression of five or six fields, or one of the names.
    pub(crate) fn parse(text: &str, zone: Zone) -> Result<Self, RuleError> {
        let error = |reason, message| Err(RuleError::new(RuleField::Timing, reason, message));
        let expression = if text.starts_with('@') {
            let named = NAMES
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(text));
            let Some((_, expression)) = named else {
                let known = NAMES.map(|(name, _)| name).join(", ");
                let message = format!("'{text}' is none of {known}, '@every DURATION'");
                return error(RuleFault::UnknownName, message);
            };
            expression
        } else {
            text
        };
        let fields = fields::split(expression)?;
        // The library takes every text that the check of the fields accepts; its own message is for the case that a
        // new version of it does not.
        let refused = |cause: croner::errors::CronError| {
            RuleError::new(
                RuleField::Timing,
                RuleFault::InvalidSyntax,
                cause.to_string(),
            )
        };
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(&fields.join(" ")).map_err(refused)?;
        let calendar = Calendar::of(&cron).map_err(refused)?;
        if calendar.is_empty() {
            let message = "matches no day of any year";
            return error(RuleFault::NeverFires, message.to_owned());
        }
        Ok(Self {
            calendar,
            zone,
            is_fixed: !fields[..3].iter().any(|field| field.contains('*')),
        })
    }
}
