//! Time zones of the IANA database that is compiled into this crate.

use jiff::{
    Timestamp as JiffTimestamp,
    tz::{Offset, TimeZone, TimeZoneDatabase},
};

use crate::error::{RuleError, RuleFault, RuleField};

/// The longest name of a zone in bytes; those of the database have at most 32.
const NAME_LEN_MAX: usize = 64;

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) struct Zone(TimeZone);

/// A time span without a change of the offset from UTC. Times are seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// Its first second.
    pub(crate) start: i64,
    /// The first second after it.
    pub(crate) end: i64,
    /// Local time minus UTC.
    pub(crate) offset: i64,
    /// The offset until `start`.
    pub(crate) offset_before: i64,
}

impl Zone {
    /// Finds a zone by its name, in any case.
    pub(crate) fn parse(name: &str) -> Result<Self, RuleError> {
        let error = |reason, message| Err(RuleError::new(RuleField::Zone, reason, message));
        if name.is_empty() {
            return error(RuleFault::Empty, "must name a time zone".to_owned());
        }
        if name.len() > NAME_LEN_MAX {
            let message = format!("has more than {NAME_LEN_MAX} bytes");
            return error(RuleFault::TooLong, message);
        }
        match TimeZoneDatabase::bundled().get(name) {
            Ok(zone) if !zone.is_unknown() => Ok(Self(zone)),
            _ => {
                let message = format!(
                    "'{name}' is not a zone of the IANA database, such as Europe/Berlin or UTC"
                );
                error(RuleFault::UnknownZone, message)
            }
        }
    }

    /// The name as the database spells it.
    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The period that contains the second `at`; `None` outside the years that the library knows. Where it began more
    /// than two days before, it counts as one without a beginning, because no gap or overlap is that long.
    pub(crate) fn period_at(&self, at: i64) -> Option<Period> {
        const LOOK_BACK_S: i64 = 2 * 86_400;
        let earlier = JiffTimestamp::from_second(at.checked_sub(LOOK_BACK_S)?).ok()?;
        let offset = self.offset(earlier);
        let mut period = Period {
            start: i64::MIN,
            end: i64::MAX,
            offset,
            offset_before: offset,
        };
        // Not `preceding`: between the last change that the database lists and the first that it computes, the library
        // leaves out the former.
        for change in self.0.following(earlier) {
            let changed_at = change.timestamp().as_second();
            if changed_at > at {
                period.end = changed_at;
                break;
            }
            period.start = changed_at;
            period.offset_before = period.offset;
            period.offset = self.offset(change.timestamp());
        }
        JiffTimestamp::from_second(at).is_ok().then_some(period)
    }

    /// The period that follows `period`.
    pub(crate) fn period_after(&self, period: &Period) -> Option<Period> {
        let start = JiffTimestamp::from_second(period.end).ok()?;
        let end = self.0.following(start).next();
        Some(Period {
            start: period.end,
            end: end.map_or(i64::MAX, |change| change.timestamp().as_second()),
            offset: self.offset(start),
            offset_before: period.offset,
        })
    }

    /// A time as local time in RFC 3339, with its offset from UTC.
    pub(crate) fn local_text(&self, millis: i64) -> Option<String> {
        let time = JiffTimestamp::from_millisecond(millis).ok()?;
        let offset = self.0.to_offset(time);
        Some(time.display_with_offset(offset).to_string())
    }

    fn offset(&self, time: JiffTimestamp) -> i64 {
        Offset::seconds(self.0.to_offset(time)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_05_zones_have_names_of_the_iana_database() {
        let name = |text: &str| Zone::parse(text).map(|zone| zone.name().to_owned());
        assert_eq!(name("Europe/Berlin").as_deref(), Ok("Europe/Berlin"));
        assert_eq!(name("america/new_york").as_deref(), Ok("America/New_York"));
        assert_eq!(name("UTC").as_deref(), Ok("UTC"));
        let long = "x".repeat(65);
        for (text, reason) in [
            ("", RuleFault::Empty),
            ("Mars/Olympus", RuleFault::UnknownZone),
            ("+02:00", RuleFault::UnknownZone),
            ("Etc/Unknown", RuleFault::UnknownZone),
            ("Europe/Berlin ", RuleFault::UnknownZone),
            ("../../etc/passwd", RuleFault::UnknownZone),
            (&long, RuleFault::TooLong),
        ] {
            let error = Zone::parse(text).unwrap_err();
            assert_eq!((error.field(), error.reason()), (RuleField::Zone, reason));
        }
    }

    #[test]
    fn the_periods_of_a_zone_follow_each_other_without_a_gap() {
        for name in [
            "Europe/Berlin",
            "Africa/Casablanca",
            "Pacific/Apia",
            "America/Ciudad_Juarez",
        ] {
            let zone = Zone::parse(name).unwrap();
            let mut period = zone.period_at(0).unwrap();
            for _ in 0..100 {
                let next = zone.period_after(&period).unwrap();
                assert_eq!(next.start, period.end);
                assert_eq!(next.offset_before, period.offset);
                if next.end == i64::MAX {
                    break;
                }
                // The same period is found from its first, its second and its last second.
                for at in [next.start, next.start + 1] {
                    let found = zone.period_at(at).unwrap();
                    assert_eq!((found.start, found.end), (next.start, next.end), "{name}");
                    assert_eq!(found.offset_before, next.offset_before, "{name} {at}");
                }
                let found = zone.period_at(next.end - 1).unwrap();
                assert_eq!((found.end, found.offset), (next.end, next.offset), "{name}");
                period = next;
            }
        }
    }
}
