//! Random cron expressions as data, with a matcher of their own.

use proptest::prelude::*;

use crate::scan::Local;

const MONTHS: [&str; 12] = [
    "JAN", "feb", "Mar", "APR", "may", "Jun", "JUL", "AUG", "SEP", "oct", "nov", "DEC",
];
const DAYS: [&str; 7] = ["SUN", "mon", "Tue", "WED", "THU", "fri", "SAT"];

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct CronFields {
    /// Without it the expression has five fields.
    pub(crate) second: Option<Vec<Item>>,
    pub(crate) minute: Vec<Item>,
    pub(crate) hour: Vec<Item>,
    pub(crate) day: Day,
    pub(crate) month: Vec<Item>,
    pub(crate) weekday: Weekday,
    /// The `+` before the weekdays.
    pub(crate) needs_both: bool,
}

/// The values that fields match, as bits.
pub(crate) struct Masks {
    pub(crate) second: u64,
    minute: u64,
    hour: u64,
    month: u64,
}

/// An item of a list of numbers. `Every` stands alone.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Every,
    Step(u32),
    Value(u32),
    Range(u32, u32),
    RangeStep(u32, u32, u32),
}

#[derive(Clone, Debug)]
pub(crate) enum Day {
    Every,
    Question,
    List(Vec<DayItem>),
}

#[derive(Clone, Debug)]
pub(crate) enum DayItem {
    Number(Item),
    Last,
    LastWorkday,
    NearestWorkday(u32),
}

#[derive(Clone, Debug)]
pub(crate) enum Weekday {
    Every,
    Question,
    List(Vec<WeekdayItem>),
}

#[derive(Clone, Debug)]
pub(crate) enum WeekdayItem {
    Number(Item),
    Named(usize),
    NamedRange(usize, usize),
    Nth(u32, u32),
    Last(u32),
}

impl CronFields {
    pub(crate) fn text(&self) -> String {
        let numbers = |items: &[Item]| list(items.iter().map(Item::text));
        let day = match &self.day {
            Day::Every => "*".into(),
            Day::Question => "?".into(),
            Day::List(items) => list(items.iter().map(|item| match item {
                DayItem::Number(item) => item.text(),
                DayItem::Last => "L".into(),
                DayItem::LastWorkday => "LW".into(),
                DayItem::NearestWorkday(day) => format!("{day}W"),
            })),
        };
        let month = list(self.month.iter().map(|item| match item {
            Item::Value(month) => MONTHS[*month as usize - 1].into(),
            Item::Range(low, high) => {
                format!(
                    "{}-{}",
                    MONTHS[*low as usize - 1],
                    MONTHS[*high as usize - 1]
                )
            }
            item => item.text(),
        }));
        let weekday = match &self.weekday {
            Weekday::Every => "*".into(),
            Weekday::Question => "?".into(),
            Weekday::List(items) => list(items.iter().map(|item| match item {
                WeekdayItem::Number(item) => item.text(),
                WeekdayItem::Named(day) => DAYS[*day].into(),
                WeekdayItem::NamedRange(low, high) => format!("{}-{}", DAYS[*low], DAYS[*high]),
                WeekdayItem::Nth(day, nth) => format!("{day}#{nth}"),
                WeekdayItem::Last(day) => format!("{day}L"),
            })),
        };
        let plus = if self.needs_both { "+" } else { "" };
        let (minute, hour) = (numbers(&self.minute), numbers(&self.hour));
        let five = format!("{minute} {hour} {day} {month} {plus}{weekday}");
        match &self.second {
            Some(second) => format!("{} {five}", numbers(second)),
            None => five,
        }
    }

    /// Whether a star is in the fields of the time of day.
    pub(crate) fn is_repeating(&self) -> bool {
        let has_star = |items: &[Item]| {
            let mut stars = items.iter();
            stars.any(|item| matches!(item, Item::Every | Item::Step(_)))
        };
        has_star(&self.minute)
            || has_star(&self.hour)
            || self.second.as_ref().is_some_and(|second| has_star(second))
    }

    /// The seconds, minutes, hours and months that match, as bits.
    pub(crate) fn masks(&self) -> Masks {
        let mask = |items: &[Item], min, max| {
            let values = (min..=max).filter(|value| has(items, *value, min));
            values.fold(0, |mask, value| mask | 1 << value)
        };
        Masks {
            second: self.second.as_ref().map_or(1, |second| mask(second, 0, 59)),
            minute: mask(&self.minute, 0, 59),
            hour: mask(&self.hour, 0, 23),
            month: mask(&self.month, 1, 12),
        }
    }

    pub(crate) fn matches_day(&self, local: &Local) -> bool {
        let by_date = match &self.day {
            Day::Every | Day::Question => None,
            Day::List(items) => Some(items.iter().any(|item| item.matches(local))),
        };
        let by_weekday = match &self.weekday {
            Weekday::Every | Weekday::Question => None,
            Weekday::List(items) => Some(items.iter().any(|item| item.matches(local))),
        };
        match (by_date, by_weekday) {
            (None, None) => true,
            (Some(only), None) | (None, Some(only)) => only,
            (Some(date), Some(weekday)) if self.needs_both => date && weekday,
            (Some(date), Some(weekday)) => date || weekday,
        }
    }
}

impl Masks {
    /// Whether the time of day and the month of a local minute match.
    pub(crate) fn matches(&self, local: &Local) -> bool {
        self.minute >> local.minute & self.hour >> local.hour & self.month >> local.month & 1 != 0
    }
}

impl Item {
    fn text(&self) -> String {
        match self {
            Self::Every => "*".into(),
            Self::Step(step) => format!("*/{step}"),
            Self::Value(value) => value.to_string(),
            Self::Range(low, high) => format!("{low}-{high}"),
            Self::RangeStep(low, high, step) => format!("{low}-{high}/{step}"),
        }
    }

    fn matches(&self, value: u32, min: u32) -> bool {
        match *self {
            Self::Every => true,
            Self::Step(step) => (value - min).is_multiple_of(step),
            Self::Value(only) => value == only,
            Self::Range(low, high) => (low..=high).contains(&value),
            Self::RangeStep(low, high, step) => {
                (low..=high).contains(&value) && (value - low).is_multiple_of(step)
            }
        }
    }
}

impl DayItem {
    fn matches(&self, local: &Local) -> bool {
        let (day, len) = (i32::from(local.day), i32::from(local.month_len));
        // 0 is Sunday.
        let weekday = |other: i32| (i32::from(local.weekday) + other - day).rem_euclid(7);
        let is_workday = |other: i32| (1..=5).contains(&weekday(other));
        match self {
            Self::Number(item) => item.matches(local.day.into(), 1),
            Self::Last => day == len,
            Self::LastWorkday => is_workday(day) && (day + 1..=len).all(|later| !is_workday(later)),
            Self::NearestWorkday(wanted) => {
                let wanted = i32::try_from(*wanted).unwrap();
                // By distance; a Saturday has Friday and a Sunday has Monday at distance one.
                let candidates = [0, -1, 1, -2, 2].map(|distance| wanted + distance);
                let mut in_month = candidates.into_iter().filter(|day| (1..=len).contains(day));
                wanted <= len && in_month.find(|day| is_workday(*day)) == Some(day)
            }
        }
    }
}

impl WeekdayItem {
    fn matches(&self, local: &Local) -> bool {
        let (weekday, day) = (u32::from(local.weekday), u32::from(local.day));
        // 0 and 7 are Sunday.
        let either = |item: &Item| item.matches(weekday, 0) || weekday == 0 && item.matches(7, 0);
        match self {
            Self::Number(item) => either(item),
            Self::Named(named) => *named as u32 == weekday,
            // As the end of a range Sunday comes after Saturday.
            Self::NamedRange(low, 0) => either(&Item::Range(*low as u32, 7)),
            Self::NamedRange(low, high) => either(&Item::Range(*low as u32, *high as u32)),
            Self::Nth(wanted, nth) => wanted % 7 == weekday && day.div_ceil(7) == *nth,
            Self::Last(wanted) => wanted % 7 == weekday && day + 7 > local.month_len.into(),
        }
    }
}

fn has(items: &[Item], value: u32, min: u32) -> bool {
    items.iter().any(|item| item.matches(value, min))
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

fn item(min: u32, max: u32) -> impl Strategy<Value = Item> {
    let range = (min..=max, min..=max).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        4 => (min..=max).prop_map(Item::Value),
        2 => range.clone().prop_map(|(low, high)| Item::Range(low, high)),
        1 => (range, 1..=max).prop_map(|((low, high), step)| Item::RangeStep(low, high, step)),
        2 => (1..=max).prop_map(Item::Step),
    ]
}

fn items(min: u32, max: u32) -> impl Strategy<Value = Vec<Item>> {
    prop_oneof![
        1 => Just(vec![Item::Every]),
        3 => proptest::collection::vec(item(min, max), 1..4),
    ]
}

/// Random expressions.
pub(crate) fn cron_fields() -> impl Strategy<Value = CronFields> {
    let day_item = prop_oneof![
        4 => item(1, 31).prop_map(DayItem::Number),
        1 => Just(DayItem::Last),
        2 => (1..=31_u32).prop_map(DayItem::NearestWorkday),
    ];
    let day = prop_oneof![
        4 => Just(Day::Every),
        1 => Just(Day::Question),
        1 => Just(Day::List(vec![DayItem::LastWorkday])),
        4 => proptest::collection::vec(day_item, 1..4).prop_map(Day::List),
    ];
    let weekday_item = prop_oneof![
        2 => item(0, 7).prop_map(WeekdayItem::Number),
        1 => (0..7_usize).prop_map(WeekdayItem::Named),
        1 => (0..7_usize, 0..7_usize).prop_map(|(a, b)| WeekdayItem::NamedRange(a.min(b), a.max(b))),
        1 => (0..7_usize).prop_map(|low| WeekdayItem::NamedRange(low, 0)),
        2 => (0..=7_u32, 1..=5_u32).prop_map(|(day, nth)| WeekdayItem::Nth(day, nth)),
        1 => (0..=7_u32).prop_map(WeekdayItem::Last),
    ];
    let weekday = prop_oneof![
        4 => Just(Weekday::Every),
        1 => Just(Weekday::Question),
        3 => proptest::collection::vec(weekday_item, 1..4).prop_map(Weekday::List),
    ];
    let month = prop_oneof![3 => Just(vec![Item::Every]), 2 => items(1, 12)];
    // The clocks change in the first hours of a day.
    let hour = prop_oneof![
        2 => items(0, 23),
        2 => proptest::collection::vec(item(0, 3), 1..3),
    ];
    let second = proptest::option::of(items(0, 59));
    (
        second,
        items(0, 59),
        hour,
        day,
        month,
        weekday,
        any::<bool>(),
    )
        .prop_map(
            |(second, minute, hour, day, month, weekday, needs_both)| CronFields {
                second,
                minute,
                hour,
                day,
                month,
                weekday,
                needs_both,
            },
        )
}
