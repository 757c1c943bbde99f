//! Priority and weight.

use std::{fmt, str::FromStr};

/// How urgent a task is among ready tasks of the same job; higher goes first. Normal is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i16);

/// A text or number that is not a priority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a priority: give a number from -1000 to 1000 or one of very_low, low, normal, high, very_high"
)]
pub struct PriorityError(pub String);

impl Priority {
    /// The five named levels and their numbers.
    pub const LEVELS: [(&'static str, i16); 5] = [
        ("very_low", -100),
        ("low", -50),
        ("normal", 0),
        ("high", 50),
        ("very_high", 100),
    ];
    /// Lowest priority.
    pub const MIN: i16 = -1000;
    /// Highest priority.
    pub const MAX: i16 = 1000;

    /// Accepts [`Priority::MIN`] to [`Priority::MAX`].
    pub fn new(number: i64) -> Result<Self, PriorityError> {
        i16::try_from(number)
            .ok()
            .filter(|n| (Self::MIN..=Self::MAX).contains(n))
            .map(Self)
            .ok_or_else(|| PriorityError(number.to_string()))
    }

    /// The number.
    pub const fn get(self) -> i16 {
        self.0
    }

    /// The name of this level, when it has one.
    pub fn name(self) -> Option<&'static str> {
        Self::LEVELS
            .iter()
            .find(|(_, number)| *number == self.0)
            .map(|(name, _)| *name)
    }
}

impl FromStr for Priority {
    type Err = PriorityError;

    /// A level's name in any letter case, with `_`, `-` or blank between words, or a number.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let name = text.trim().to_ascii_lowercase().replace(['-', ' '], "_");
        if let Some((_, number)) = Self::LEVELS.iter().find(|(level, _)| *level == name) {
            return Ok(Self(*number));
        }
        let bad = || PriorityError(text.chars().take(64).flat_map(char::escape_debug).collect());
        // Parses the text and not `name`, in which the sign of a negative number is an underscore.
        let number = text.trim().parse();
        number.map_err(|_| bad()).and_then(Self::new)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// What a task counts against an executor's maximum concurrency: 1 to [`Weight::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

/// A number that is not a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("weight {0} is not between 1 and 10000")]
pub struct WeightError(pub i64);

impl Weight {
    /// The default weight.
    pub const ONE: Self = Self(1);
    /// Heaviest weight.
    pub const MAX: u16 = 10_000;

    /// Accepts 1 to [`Weight::MAX`].
    pub fn new(number: i64) -> Result<Self, WeightError> {
        u16::try_from(number)
            .ok()
            .filter(|n| (1..=Self::MAX).contains(n))
            .map(Self)
            .ok_or(WeightError(number))
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_023_five_named_levels_in_any_letter_case_normal_by_default() {
        assert_eq!(Priority::default().to_string(), "normal");
        assert_eq!("Very-High".parse(), Priority::new(100));
        assert_eq!("VERY_LOW".parse::<Priority>().unwrap().get(), -100);
        assert_eq!("-5".parse(), Priority::new(-5));
        let urgent = "urgent".parse::<Priority>().unwrap_err().to_string();
        for (name, _) in Priority::LEVELS {
            assert!(urgent.contains(name), "{urgent}");
        }
    }

    #[test]
    fn f_034_weight_zero_is_refused() {
        assert_eq!(Weight::new(0), Err(WeightError(0)));
        assert_eq!(Weight::new(10_001), Err(WeightError(10_001)));
        assert_eq!(Weight::new(3).unwrap().get(), 3);
    }
}
