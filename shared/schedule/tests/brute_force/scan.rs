//! Every minute from January 2025 to June 2026 in a zone, and the firings of an expression among them.

use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};

use crate::fields::CronFields;

/// 2025-01-01T00:00:00Z.
const FIRST: i64 = 1_735_689_600;
const MINUTES: i64 = 530 * 24 * 60;

/// What a clock on the wall shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Local {
    pub(crate) minute: u8,
    pub(crate) hour: u8,
    pub(crate) day: u8,
    pub(crate) month: u8,
    /// 0 is Sunday.
    pub(crate) weekday: u8,
    pub(crate) month_len: u8,
    /// Minutes since 1970 as if the clock showed UTC; only for gaps and overlaps.
    pub(crate) linear: i32,
}

/// The local times of a zone, minute by minute.
pub(crate) struct ZoneMinutes {
    pub(crate) name: &'static str,
    /// The seconds since 1970 at which the clock changes.
    pub(crate) changes: Vec<i64>,
    minutes: Vec<Local>,
    zone: TimeZone,
}

/// The firings of an expression.
pub(crate) struct Scan {
    /// The seconds since 1970 at which a minute begins, and its seconds that fire, as bits.
    minutes: Vec<(i64, u64)>,
}

impl ZoneMinutes {
    pub(crate) fn of(name: &'static str) -> Self {
        let zone = TimeZoneDatabase::bundled().get(name).unwrap();
        let minutes: Vec<Local> = (0..MINUTES / 15)
            .flat_map(|quarter| quarter_hour(&zone, FIRST + quarter * 900))
            .collect();
        let changes = (1..)
            .zip(minutes.windows(2))
            .filter(|(_, pair)| pair[1].linear != pair[0].linear + 1)
            .map(|(minute, _)| FIRST + minute * 60)
            .collect();
        Self {
            name,
            changes,
            minutes,
            zone,
        }
    }

    /// The first second, and the second after the last.
    pub(crate) fn range(&self) -> (i64, i64) {
        (FIRST, FIRST + MINUTES * 60)
    }
}

/// The minutes of a quarter of an hour. Clocks are set at its beginning and by whole quarters in these zones and years,
/// so only its first minute is converted.
fn quarter_hour(zone: &TimeZone, second: i64) -> impl Iterator<Item = Local> {
    let offset = |second| zone.to_offset(Timestamp::from_second(second).unwrap());
    assert_eq!(offset(second), offset(second + 899));
    assert_eq!(offset(second).seconds() % 900, 0);
    let first = local(zone, second);
    (0..15).map(move |minute| Local {
        minute: first.minute + minute,
        linear: first.linear + i32::from(minute),
        ..first
    })
}

fn local(zone: &TimeZone, second: i64) -> Local {
    let time = zone.to_datetime(Timestamp::from_second(second).unwrap());
    let u8 = |value: i8| u8::try_from(value).unwrap();
    assert_eq!(
        time.second(),
        0,
        "the offsets of these years are whole minutes"
    );
    let linear = zone
        .to_offset(Timestamp::from_second(second).unwrap())
        .seconds();
    Local {
        minute: u8(time.minute()),
        hour: u8(time.hour()),
        day: u8(time.day()),
        month: u8(time.month()),
        weekday: u8(time.weekday().to_sunday_zero_offset()),
        month_len: u8(time.days_in_month()),
        linear: i32::try_from((second + i64::from(linear)) / 60).unwrap(),
    }
}

impl Scan {
    pub(crate) fn of(cron: &CronFields, zone: &ZoneMinutes) -> Self {
        let masks = cron.masks();
        let matches = |local: &Local| masks.matches(local) && cron.matches_day(local);
        let is_repeating = cron.is_repeating();
        let mut firings = Vec::new();
        // What the clock showed before, and the latest that it ever showed.
        let mut before = local(&zone.zone, FIRST - 60).linear;
        let mut latest = before;
        for (utc, minute) in (FIRST..).step_by(60).zip(&zone.minutes) {
            let mut mask = if matches(minute) { masks.second } else { 0 };
            if !is_repeating {
                if minute.linear <= latest {
                    mask = 0;
                }
                // Each local minute that was left out, at its own date and time.
                let mut left_out = before + 1..minute.linear;
                if left_out.any(|linear| matches(&at_linear(linear))) {
                    mask |= 1;
                }
            }
            if mask != 0 {
                firings.push((utc, mask));
            }
            before = minute.linear;
            latest = latest.max(before);
        }
        Self { minutes: firings }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.minutes.is_empty()
    }

    fn all(&self, from: i64, to: i64) -> impl Iterator<Item = i64> {
        let first = self
            .minutes
            .partition_point(|(minute, _)| minute + 60 <= from);
        let minutes = self.minutes[first..].iter();
        minutes
            .take_while(move |(minute, _)| *minute < to)
            .flat_map(|(minute, mask)| {
                (0..60)
                    .filter(move |second| mask >> second & 1 != 0)
                    .map(move |second| minute + second)
            })
            .filter(move |second| (from..to).contains(second))
    }

    pub(crate) fn first(&self, from: i64, to: i64, max: usize) -> Vec<i64> {
        self.all(from, to).take(max).collect()
    }

    pub(crate) fn count(&self, from: i64, to: i64) -> u64 {
        // Whole minutes by their bits; a year of every second would be too slow one by one.
        let inner = |minute: i64| minute >= from && minute + 60 <= to;
        let first = self
            .minutes
            .partition_point(|(minute, _)| minute + 60 <= from);
        let minutes = self.minutes[first..]
            .iter()
            .take_while(|(minute, _)| *minute < to);
        minutes
            .map(|(minute, mask)| match inner(*minute) {
                true => u64::from(mask.count_ones()),
                false => self.all(from.max(*minute), to.min(minute + 60)).count() as u64,
            })
            .sum()
    }

    /// The `n`th from the end.
    pub(crate) fn last(&self, from: i64, to: i64, n: u64) -> Option<i64> {
        let position = self.count(from, to).checked_sub(n).filter(|_| n > 0)?;
        self.all(from, to).nth(usize::try_from(position).unwrap())
    }
}

/// The date and time of a local minute that no clock showed.
fn at_linear(linear: i32) -> Local {
    local(&TimeZone::UTC, i64::from(linear) * 60)
}
