//! Rules: when a schedule fires.

use dueline_domain::{RuleSpec, Timestamp};

use crate::{
    cron::Cron,
    error::{RuleError, RuleFault, RuleField},
    interval::Interval,
    zone::Zone,
};

/// A valid rule: a function from a time to the next firing.
///
/// The times of its firings are *nominal*: they follow from the rule alone, never from the end of a task.
///
/// ```
/// use dueline_domain::{RuleSpec, Timestamp};
/// use dueline_schedule::Rule;
///
/// let rule = Rule::parse(&RuleSpec {
///     timing: "30 2 * * *".into(),
///     zone: Some("Europe/Berlin".into()),
///     ..RuleSpec::default()
/// })?;
/// // On 28 March 2027 the clock goes from 02:00 to 03:00.
/// let before = Timestamp::clamped(1_806_188_400_000);
/// let next = rule.next_after(before).expect("it fires every day");
/// assert_eq!(rule.local_text(next), "2027-03-28T03:00:00+02:00");
/// # Ok::<(), dueline_schedule::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    timing: Timing,
    zone: Zone,
    start: Timestamp,
    end: Option<Timestamp>,
}

/// Some firings of a range, and where the others begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firings {
    /// Nominal times, ascending.
    pub times: Vec<Timestamp>,
    /// The first firing of the range that is not among them.
    pub rest: Option<Timestamp>,
}

#[derive(Clone, Debug)]
enum Timing {
    // A calendar has more than a kilobyte.
    Cron(Box<Cron>),
    Interval(Interval),
}

impl Rule {
    /// How far ahead [`Rule::next_after`] searches: 100 years. Two matching days of a calendar are at most 40 years
    /// apart, so only a rule whose times all fall into gaps of its zone ends here.
    const HORIZON_MS: i64 = 100 * 366 * 86_400_000;

    /// Checks and builds a rule.
    pub fn parse(spec: &RuleSpec) -> Result<Self, RuleError> {
        // Destructured without `..`, so that a new field does not compile before it is checked.
        let RuleSpec {
            timing,
            zone,
            start,
            end,
            anchor,
        } = spec;
        let zone = Zone::parse(zone.as_deref().unwrap_or("UTC"))?;
        let rule = Self {
            timing: Timing::parse(timing.trim(), &zone, *anchor)?,
            zone,
            start: start.unwrap_or(Timestamp::EPOCH),
            end: *end,
        };
        let never = |reason, message| Err(RuleError::new(RuleField::End, reason, message));
        if rule.end.is_some_and(|end| end <= rule.start) {
            return never(RuleFault::EmptyRange, "must be later than the start");
        }
        if rule.end.is_some() && rule.first().is_none() {
            let message = "the rule does not fire between its start and its end";
            return never(RuleFault::NeverFires, message);
        }
        Ok(rule)
    }

    /// The name of the time zone, as the IANA database spells it.
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// The first firing of all.
    pub fn first(&self) -> Option<Timestamp> {
        self.next_from(self.start.millis())
    }

    /// The first firing later than `time`; `None` when the rule does not fire again, or not within 100 years.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        self.next_from(time.millis() + 1)
    }

    /// The first `max` firings at or after `from` and before `to`.
    pub fn between(&self, from: Timestamp, to: Timestamp, max: usize) -> Firings {
        let mut firings = Firings::default();
        let mut next = self.next_from(from.millis());
        while let Some(time) = next
            && time < to
        {
            if firings.times.len() == max {
                firings.rest = Some(time);
                break;
            }
            firings.times.push(time);
            next = self.next_after(time);
        }
        firings
    }

    /// The number of firings at or after `from` and before `to`. The work depends on the changes of the clock in the
    /// range and its months, not on the number of firings.
    pub fn count(&self, from: Timestamp, to: Timestamp) -> u64 {
        self.count_ms(from.millis(), to.millis())
    }

    /// The firing at or after `from` and before `to` that is the `n`th from the end of this range; 1 gives the latest.
    pub fn from_last(&self, n: u64, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        let (from, to) = (from.millis(), to.millis());
        // Windows that end at `to`, doubled until one has n firings, so that the work depends on how far back the
        // firing lies and not on the length of the range.
        let mut missing = to;
        let mut width_ms = 1_000;
        let mut enough = loop {
            let start = (to - width_ms).max(from);
            if self.count_ms(start, to) >= n {
                break start;
            }
            if start <= from {
                return None;
            }
            missing = start;
            width_ms *= 2;
        };
        // From `enough` on there are n firings, from `missing` on there are fewer.
        while missing - enough > 1 {
            let middle = enough + (missing - enough) / 2;
            if self.count_ms(middle, to) >= n {
                enough = middle;
            } else {
                missing = middle;
            }
        }
        (n > 0 && from < to).then(|| Timestamp::clamped(enough))
    }

    /// A time as local time of the rule's zone, in RFC 3339 with the offset from UTC.
    pub fn local_text(&self, time: Timestamp) -> String {
        let text = self.zone.local_text(time.millis());
        // Only the last days of the year 9999 have no local time.
        text.unwrap_or_else(|| time.to_string())
    }

    /// The first firing at or after `from_ms`.
    fn next_from(&self, from_ms: i64) -> Option<Timestamp> {
        let from_ms = from_ms.max(self.start.millis());
        let horizon_ms = from_ms.saturating_add(Self::HORIZON_MS);
        let until_ms = self.end_ms().min(horizon_ms);
        if from_ms >= until_ms {
            return None;
        }
        let next_ms = match &self.timing {
            Timing::Cron(cron) => cron.next(seconds(from_ms), seconds(until_ms))? * 1_000,
            Timing::Interval(interval) => interval.next(from_ms, until_ms)?,
        };
        Timestamp::from_millis(next_ms).ok()
    }

    fn count_ms(&self, from_ms: i64, to_ms: i64) -> u64 {
        let (from_ms, to_ms) = (from_ms.max(self.start.millis()), to_ms.min(self.end_ms()));
        if from_ms >= to_ms {
            return 0;
        }
        match &self.timing {
            Timing::Cron(cron) => cron.count(seconds(from_ms), seconds(to_ms)),
            Timing::Interval(interval) => interval.count(from_ms, to_ms),
        }
    }

    /// The first millisecond at which the rule may not fire any more.
    fn end_ms(&self) -> i64 {
        self.end
            .map_or(Timestamp::MAX.millis() + 1, Timestamp::millis)
    }
}

impl Timing {
    /// The longest text in bytes. Messages repeat parts of it.
    const BYTES_MAX: usize = 256;

    fn parse(text: &str, zone: &Zone, anchor: Option<Timestamp>) -> Result<Self, RuleError> {
        let max = Self::BYTES_MAX;
        if text.len() > max {
            let message = format!("has {} bytes; at most {max} are allowed", text.len());
            let (field, reason) = (RuleField::Timing, RuleFault::TooLong);
            return Err(RuleError::new(field, reason, message));
        }
        let (first, rest) = text
            .split_once(|c: char| c.is_ascii_whitespace())
            .unwrap_or((text, ""));
        if first.eq_ignore_ascii_case("@every") {
            let anchor_ms = anchor.unwrap_or_default().millis();
            return Interval::parse(rest.trim(), anchor_ms).map(Self::Interval);
        }
        let cron = Cron::parse(text, zone.clone())?;
        if anchor.is_some() {
            let message =
                "only an interval has an anchor; the fields of a cron expression are its phase";
            let (field, reason) = (RuleField::Anchor, RuleFault::NotApplicable);
            return Err(RuleError::new(field, reason, message));
        }
        Ok(Self::Cron(Box::new(cron)))
    }
}

/// The first whole second at or after a time.
const fn seconds(millis: i64) -> i64 {
    millis.div_euclid(1_000) + (millis.rem_euclid(1_000) != 0) as i64
}
