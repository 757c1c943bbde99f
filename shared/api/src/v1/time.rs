//! Points in time as RFC 3339.

use std::fmt;

use dueline_domain::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const DAY_MS: i64 = 86_400_000;
/// What a time must be.
const RANGE: &str = "must be an RFC 3339 time between 1970 and 9999";

/// A point in time on the wire: written as `2026-11-20T09:30:00.250Z`; read as RFC 3339 with any offset, or as whole
/// milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl Time {
    /// Reads RFC 3339. Parts of a millisecond round up, so that nothing is due before the time that was asked for.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{RANGE}; {why}");
        // What the parser says is about its inner life, and an example helps more.
        let pieces = jiff::fmt::temporal::Pieces::parse(text).map_err(|_| {
            let text = cut(text);
            wrong(&format!("'{text}' is not, but 2026-11-20T09:30:00Z is"))
        })?;
        if pieces.time_zone_annotation().is_some() {
            return Err(wrong("it may not name a time zone"));
        }
        let time = pieces
            .time()
            .ok_or_else(|| wrong("it has no time of day"))?;
        let offset = pieces
            .to_numeric_offset()
            .ok_or_else(|| wrong("it has no offset such as Z or +02:00"))?;
        let date = pieces.date();
        let days = days_from_date(date.year().into(), date.month().into(), date.day().into());
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        let of_day = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        let parts = (i64::from(time.subsec_nanosecond()) + 999_999) / 1_000_000;
        let seconds = of_day - i64::from(offset.seconds());
        Timestamp::from_millis(days * DAY_MS + seconds * 1000 + parts)
            .map(Self)
            .map_err(|_| RANGE.to_owned())
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.millis();
        let (year, month, day) = date_from_days(millis.div_euclid(DAY_MS));
        let of_day = millis.rem_euclid(DAY_MS);
        let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
}

/// Days from 1970-01-01 to a date. Years are counted from March, so that the leap day is a year's last one.
fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // From March on, month lengths repeat as 31 30 31 30 31: 153 days in five months.
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    // 719468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + day_of_year - 719_468
}

/// The date that is `days` after 1970-01-01.
fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}

fn cut(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time or whole milliseconds since 1970")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                Time::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, millis: i64) -> Result<Time, E> {
                Timestamp::from_millis(millis).map(Time).map_err(|_| {
                    E::custom("must be a number of milliseconds that lies between 1970 and 9999")
                })
            }

            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Time, E> {
                self.visit_i64(i64::try_from(millis).unwrap_or(i64::MAX))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl utoipa::PartialSchema for Time {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some(
                "RFC 3339. Written in UTC with milliseconds; read with any offset, or as a number of milliseconds \
                 since 1970.",
            ))
            .into()
    }
}

impl utoipa::ToSchema for Time {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_009_times_are_written_and_read_over_the_whole_range() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            let time = Time(Timestamp::from_millis(millis).unwrap());
            assert_eq!(time.to_string(), text);
            assert_eq!(Time::parse(text), Ok(time));
            let json = serde_json::to_string(&time).unwrap();
            assert_eq!(serde_json::from_str::<Time>(&json).unwrap(), time);
            let number = millis.to_string();
            assert_eq!(serde_json::from_str::<Time>(&number).unwrap(), time);
        }
        for days in (0..2_932_897).step_by(17) {
            let (year, month, day) = date_from_days(days);
            assert_eq!(days_from_date(year, month, day), days);
        }
    }

    #[test]
    fn an_offset_is_taken_into_account_and_parts_of_a_millisecond_round_up() {
        let at = |text| Time::parse(text).unwrap().0.millis();
        assert_eq!(at("1970-01-01T02:00:00+02:00"), 0);
        assert_eq!(at("1970-01-01T00:00:00.0000001Z"), 1);
        assert_eq!(at("1970-01-01T00:00:00.9999999Z"), 1000);
    }

    #[test]
    fn f_009_what_is_no_time_or_lies_past_the_year_9999_is_refused() {
        for bad in [
            "",
            "soon",
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+01:00[Europe/Berlin]",
            "10000-01-01T00:00:00Z",
            "+010000-01-01T00:00:00Z",
            "9999-12-31T23:59:59.9999Z",
            "1969-12-31T23:59:59Z",
        ] {
            let error = Time::parse(bad).unwrap_err();
            assert!(
                error.starts_with("must be an RFC 3339 time between 1970 and 9999"),
                "{error}"
            );
        }
        for bad in ["253402300800000", "-1", "1.5", "true", "1e400"] {
            assert!(serde_json::from_str::<Time>(bad).is_err(), "{bad}");
        }
    }
}
