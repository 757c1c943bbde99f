//! Why a text is not a rule.

use std::fmt;

/// A rule that cannot be accepted: which field, a reason for programs, a text for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct RuleError {
    field: RuleField,
    reason: RuleFault,
    message: String,
}

impl RuleError {
    pub(crate) fn new(field: RuleField, reason: RuleFault, message: impl Into<String>) -> Self {
        Self {
            field,
            reason,
            message: message.into(),
        }
    }

    /// The field that is wrong.
    pub const fn field(&self) -> RuleField {
        self.field
    }

    /// What is wrong with it.
    pub const fn reason(&self) -> RuleFault {
        self.reason
    }

    /// The text for people, without the name of the field.
    pub fn message(&self) -> &str {
        &self.message
    }
}

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The name for programs. It never changes.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names!(
    /// A field of a [`RuleSpec`](crate::RuleSpec), or one field of its cron expression.
    RuleField {
        /// The cron expression or the interval as a whole.
        Timing = "timing",
        /// The second field of a cron expression.
        Second = "timing.second",
        /// The minute field of a cron expression.
        Minute = "timing.minute",
        /// The hour field of a cron expression.
        Hour = "timing.hour",
        /// The day-of-month field of a cron expression.
        DayOfMonth = "timing.day_of_month",
        /// The month field of a cron expression.
        Month = "timing.month",
        /// The day-of-week field of a cron expression.
        DayOfWeek = "timing.day_of_week",
        /// The phase of an interval.
        Anchor = "anchor",
        /// The time zone.
        Zone = "zone",
        /// The end of the range in which the rule fires.
        End = "end",
    }
);

names!(
    /// What is wrong with a field.
    RuleFault {
        /// The text is empty.
        Empty = "empty",
        /// The text is longer than the limit.
        TooLong = "too_long",
        /// A cron expression has neither five nor six fields.
        FieldCount = "field_count",
        /// The text does not follow the syntax.
        InvalidSyntax = "invalid_syntax",
        /// A number, a step, an interval or a range of numbers is outside its limits.
        OutOfRange = "out_of_range",
        /// A text that begins with `@` is none of the known names.
        UnknownName = "unknown_name",
        /// The time zone is not in the IANA database.
        UnknownZone = "unknown_zone",
        /// The rule would never fire.
        NeverFires = "never_fires",
        /// The end is not later than the start.
        EmptyRange = "empty_range",
        /// The field has no meaning for this kind of rule.
        NotApplicable = "not_applicable",
    }
);
