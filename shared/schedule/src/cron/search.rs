//! The firings of a cron expression in UTC, with the rule for changes of the clock.
//!
//! A zone is a sequence of periods of constant offset. Within a period local time runs evenly, so the calendar is
//! searched directly. Where two periods meet, local time is skipped (a gap) or repeated (an overlap):
//!
//! * A *fixed* expression, without `*` in its second, minute and hour, fires once for each of its local times. All that
//!   fall into a gap become one firing, at the first instant after the gap. In an overlap it fires the first time only.
//! * Any other expression fires whenever the local clock shows a matching time: not in a gap, and in an overlap twice.

use super::Cron;
use crate::zone::Period;

impl Cron {
    /// The first firing at or after the second `from` and before `until`.
    pub(crate) fn next(&self, from: i64, until: i64) -> Option<i64> {
        let mut period = self.zone.period_at(from)?;
        loop {
            let found = self.next_in(&period, from, until);
            if found.is_some() || period.end >= until {
                return found;
            }
            period = self.zone.period_after(&period)?;
        }
    }

    /// The number of firings at or after the second `from` and before `until`.
    pub(crate) fn count(&self, from: i64, until: i64) -> u64 {
        let mut count = 0;
        let mut next = self.zone.period_at(from);
        while let Some(period) = next {
            count += self.count_in(&period, from, until);
            if period.end >= until {
                break;
            }
            next = self.zone.period_after(&period);
        }
        count
    }

    fn next_in(&self, period: &Period, from: i64, until: i64) -> Option<i64> {
        if (from..until).contains(&period.start) && self.has_missed_in_gap(period) {
            return Some(period.start);
        }
        let (first, end) = self.bounds(period, from, until)?;
        let local = self
            .calendar
            .next(first + period.offset, end + period.offset)?;
        Some(local - period.offset)
    }

    fn count_in(&self, period: &Period, from: i64, until: i64) -> u64 {
        let Some((first, end)) = self.bounds(period, from, until) else {
            return 0;
        };
        let offset = period.offset;
        let count = self.calendar.count(first + offset, end + offset);
        // The firing after the gap is one of those just counted if its local time matches too.
        let is_extra = first == period.start
            && self.has_missed_in_gap(period)
            && self.calendar.count(first + offset, first + offset + 1) == 0;
        count + u64::from(is_extra)
    }

    /// Whether local times of a fixed expression fall into the gap before the period.
    fn has_missed_in_gap(&self, period: &Period) -> bool {
        let Period { start, .. } = *period;
        self.is_fixed
            && period.offset > period.offset_before
            && self
                .calendar
                .next(start + period.offset_before, start + period.offset)
                .is_some()
    }

    /// The part of a period from `from` to `until` in which the expression may fire, as its first second and the second
    /// after it.
    fn bounds(&self, period: &Period, from: i64, until: i64) -> Option<(i64, i64)> {
        let mut first = period.start;
        if self.is_fixed && period.offset < period.offset_before {
            // The local times of the overlap were in the period before.
            first += period.offset_before - period.offset;
        }
        let (first, end) = (first.max(from), period.end.min(until));
        (first < end).then_some((first, end))
    }
}
