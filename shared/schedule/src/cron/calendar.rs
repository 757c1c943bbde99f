//! On which days and at which times of a day a cron expression matches, in local time without a zone.
//!
//! Local times are seconds since 1970, counted as if the clock on the wall showed UTC.

use croner::{Cron as Croner, errors::CronError, time::Weekday};
use jiff::{Timestamp as JiffTimestamp, civil::Date, tz::Offset};

const DAY_S: i64 = 86_400;

/// The days and times at which a cron expression matches.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    /// For each kind of year and each month, bit n for day n. The Gregorian calendar has 14 kinds of years: by the
    /// weekday of the first of January, and leap or not.
    days: [[u64; 12]; 14],
    hours: u64,
    minutes: u64,
    seconds: u64,
}

impl Calendar {
    /// Asks the cron library about every day of every kind of year. A search then needs no more than a look at a bit
    /// mask for each month.
    pub(crate) fn of(cron: &Croner) -> Result<Self, CronError> {
        let pattern = &cron.pattern;
        let mut days = [[0; 12]; 14];
        // 28 consecutive years of one century contain all kinds.
        for year in 2000..2028 {
            for month in (1..=12).filter_map(|month| Month::of(year, month)) {
                let number = month.number + 1;
                if !pattern.month_match(number)? {
                    continue;
                }
                for day in 1..=month.len {
                    let weekday = Weekday::Sunday.shift(month.first_weekday + day - 1);
                    let day = day.unsigned_abs();
                    if pattern.day_match(year.into(), number, day, weekday)? {
                        *month.of_kind_mut(&mut days) |= 1 << day;
                    }
                }
            }
        }
        let mask = |values: Vec<u16>| values.into_iter().fold(0, |mask, value| mask | 1 << value);
        Ok(Self {
            days,
            hours: mask(pattern.hours.values()),
            minutes: mask(pattern.minutes.values()),
            seconds: mask(pattern.seconds.values()),
        })
    }

    /// Whether the expression matches no time of any year.
    pub(crate) fn is_empty(&self) -> bool {
        self.days.iter().flatten().all(|days| *days == 0) || self.matches_a_day() == 0
    }

    /// The first matching local time at or after `from` and before `until`.
    pub(crate) fn next(&self, from: i64, until: i64) -> Option<i64> {
        let (today, of_day) = (from.div_euclid(DAY_S), from.rem_euclid(DAY_S));
        let mut month = Month::containing(today)?;
        let date = today - month.first_day + 1;
        if self.days_of(&month) & 1 << date != 0
            && let Some(time) = self.next_of_day(of_day)
        {
            let found = today * DAY_S + time;
            return (found < until).then_some(found);
        }
        let mut later = !0 << (date + 1);
        let first_time = self.next_of_day(0)?;
        loop {
            let days = self.days_of(&month) & later;
            if days != 0 {
                let day = month.first_day + i64::from(days.trailing_zeros()) - 1;
                let found = day * DAY_S + first_time;
                return (found < until).then_some(found);
            }
            month = month.next()?;
            if month.first_day * DAY_S >= until {
                return None;
            }
            later = !0;
        }
    }

    /// The number of matching local times at or after `from` and before `until`.
    pub(crate) fn count(&self, from: i64, until: i64) -> u64 {
        if until <= from {
            return 0;
        }
        let (first, last) = (from.div_euclid(DAY_S), until.div_euclid(DAY_S));
        let before_from = self.count_of_day(from.rem_euclid(DAY_S));
        let before_until = self.count_of_day(until.rem_euclid(DAY_S));
        // Whole days from the first to the one before the last, then the part of the last, without the part of the
        // first that lies before `from`.
        self.count_days(first, last) * self.matches_a_day()
            + self.count_days(last, last + 1) * before_until
            - self.count_days(first, first + 1) * before_from
    }

    /// The number of matching days from `first` to the one before `end`.
    fn count_days(&self, first: i64, end: i64) -> u64 {
        let mut count = 0;
        let mut next = Month::containing(first);
        while let Some(month) = next
            && month.first_day < end
        {
            let mut days = self.days_of(&month);
            if month.first_day < first {
                days &= !0 << (first - month.first_day + 1);
            }
            if end - month.first_day < month.len.into() {
                days &= !(!0 << (end - month.first_day + 1));
            }
            count += u64::from(days.count_ones());
            next = month.next();
        }
        count
    }

    const fn days_of(&self, month: &Month) -> u64 {
        self.days[month.kind][month.number as usize]
    }

    fn matches_a_day(&self) -> u64 {
        let ones = |mask: u64| u64::from(mask.count_ones());
        ones(self.hours) * ones(self.minutes) * ones(self.seconds)
    }

    /// The first matching second of a day at or after its second `from`.
    fn next_of_day(&self, from: i64) -> Option<i64> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        let first = |mask: u64| next_bit(mask, 0);
        let at = |hour, minute, second| Some(hour * 3_600 + minute * 60 + second);
        if bit(self.hours, hour) {
            if bit(self.minutes, minute)
                && let Some(second) = next_bit(self.seconds, second)
            {
                return at(hour, minute, second);
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return at(hour, minute, first(self.seconds)?);
            }
        }
        let hour = next_bit(self.hours, hour + 1)?;
        at(hour, first(self.minutes)?, first(self.seconds)?)
    }

    /// The number of matching seconds of a day before its second `until`.
    fn count_of_day(&self, until: i64) -> u64 {
        let (hour, minute, second) = (until / 3_600, until / 60 % 60, until % 60);
        let ones = |mask: u64| u64::from(mask.count_ones());
        let before = |mask: u64, value: i64| ones(mask & !(!0 << value));
        let is = |mask, value| u64::from(bit(mask, value));
        let in_minute = is(self.minutes, minute) * before(self.seconds, second);
        let in_hour = before(self.minutes, minute) * ones(self.seconds) + in_minute;
        before(self.hours, hour) * ones(self.minutes) * ones(self.seconds)
            + is(self.hours, hour) * in_hour
    }
}

const fn bit(mask: u64, value: i64) -> bool {
    mask >> value & 1 != 0
}

/// The lowest bit of `mask` at or above `from`, which is at most 60.
fn next_bit(mask: u64, from: i64) -> Option<i64> {
    let rest = mask & !0 << from;
    (rest != 0).then(|| rest.trailing_zeros().into())
}

/// A month of a year.
#[derive(Clone, Copy, Debug)]
struct Month {
    year: i16,
    /// 0 to 11.
    number: u32,
    /// Days from 1970-01-01 to its first day.
    first_day: i64,
    /// From Sunday.
    first_weekday: i32,
    len: i32,
    /// The kind of its year.
    kind: usize,
}

impl Month {
    /// `None` outside the years that the library knows.
    fn of(year: i16, month: i8) -> Option<Self> {
        Date::new(year, month, 1).ok()?.try_into().ok()
    }

    /// The month of the day that lies `day` days after 1970-01-01.
    fn containing(day: i64) -> Option<Self> {
        let time = JiffTimestamp::from_second(day.checked_mul(DAY_S)?).ok()?;
        let date = Offset::UTC.to_datetime(time).date();
        Self::of(date.year(), date.month())
    }

    fn next(&self) -> Option<Self> {
        let first_day = self.first_day + i64::from(self.len);
        match self.number {
            11 => Self::of(self.year.checked_add(1)?, 1),
            number => {
                let month = i8::try_from(number).ok()? + 2;
                let len = Date::new(self.year, month, 1).ok()?.days_in_month();
                Some(Self {
                    number: number + 1,
                    first_day,
                    first_weekday: weekday_of(first_day),
                    len: len.into(),
                    ..*self
                })
            }
        }
    }

    const fn of_kind_mut<'a>(&self, days: &'a mut [[u64; 12]; 14]) -> &'a mut u64 {
        &mut days[self.kind][self.number as usize]
    }
}

impl TryFrom<Date> for Month {
    type Error = jiff::Error;

    /// The month of a first day.
    fn try_from(first: Date) -> Result<Self, jiff::Error> {
        let january = Date::new(first.year(), 1, 1)?;
        let leap = usize::from(first.in_leap_year());
        let kind = usize::from(january.weekday().to_sunday_zero_offset().unsigned_abs()) + 7 * leap;
        let first_day = day_number(first)?;
        Ok(Self {
            year: first.year(),
            number: u32::from(first.month().unsigned_abs()) - 1,
            first_day,
            first_weekday: weekday_of(first_day),
            len: first.days_in_month().into(),
            kind,
        })
    }
}

/// Days from 1970-01-01.
fn day_number(date: Date) -> Result<i64, jiff::Error> {
    let midnight = Offset::UTC.to_timestamp(date.at(0, 0, 0, 0))?;
    Ok(midnight.as_second().div_euclid(DAY_S))
}

/// The weekday from Sunday; 1970-01-01 was a Thursday.
const fn weekday_of(day: i64) -> i32 {
    // A remainder of 7 fits.
    (day + 4).rem_euclid(7) as i32
}
