//! What stands after the question mark.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dueline_api::{
    ApiError, ErrorReason, check::PAGE_LEN_DEFAULT, operation::NEXT_DEFAULT, v1::Time,
};
use dueline_domain::{JobName, ScheduleName, StateKind, TaskId, Timestamp};
use dueline_ports::{ListOrder, ListQuery};
use http::Uri;

/// The parameters of a call, in order.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the parameters; one that is not `known` is refused.
    pub(super) fn of(uri: &Uri, known: &[&str]) -> Result<Self, ApiError> {
        let Some(text) = uri.query() else {
            return Ok(Self(Vec::new()));
        };
        let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes())
            .into_owned()
            .collect();
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !known.contains(&&**name)) {
            let name: String = name.chars().take(64).collect();
            let message = if known.is_empty() {
                "this call takes no parameters".to_owned()
            } else {
                format!("unknown parameter; known are {}", known.join(", "))
            };
            return Err(ApiError::invalid(name, ErrorReason::UnknownField, message));
        }
        Ok(Self(pairs))
    }

    /// The last value of a parameter.
    fn get(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// `wait`.
    pub(super) fn wait(&self) -> Result<Option<Duration>, ApiError> {
        self.get("wait").map(duration).transpose()
    }

    /// Whether a parameter is `true`.
    pub(super) fn flag(&self, name: &'static str) -> Result<bool, ApiError> {
        self.get(name).map_or(Ok(false), |text| {
            let message = "must be true or false";
            let parsed = text.parse();
            parsed.map_err(|_| ApiError::invalid(name, ErrorReason::InvalidValue, message))
        })
    }

    /// `limit`. A text that is no number is out of range, too.
    pub(super) fn limit(&self) -> usize {
        self.get("limit")
            .map_or(PAGE_LEN_DEFAULT, |text| text.parse().unwrap_or(0))
    }

    /// The jobs of `job`, repeated or listed.
    pub(super) fn jobs(&self) -> Result<Vec<JobName>, ApiError> {
        let names = self.all("job").flat_map(|list| list.split(','));
        let jobs = names.map(|name| JobName::parse(name.trim()));
        jobs.collect::<Result<_, _>>()
            .map_err(|error| ApiError::invalid("job", ErrorReason::InvalidName, error))
    }

    /// `cursor`.
    pub(super) fn cursor(&self) -> Option<Arc<str>> {
        self.get("cursor").map(Arc::from)
    }

    /// `next`: how many firings to show.
    pub(super) fn next_firings(&self) -> usize {
        self.get("next")
            .map_or(NEXT_DEFAULT, |text| text.parse().unwrap_or(usize::MAX))
    }

    /// `kind`.
    pub(super) fn kind(&self) -> Option<&str> {
        self.get("kind")
    }

    /// The name of a schedule.
    pub(super) fn schedule(&self, name: &'static str) -> Result<Option<ScheduleName>, ApiError> {
        self.get(name)
            .map(ScheduleName::parse)
            .transpose()
            .map_err(|error| ApiError::invalid(name, ErrorReason::InvalidName, error))
    }

    /// The id of a task.
    pub(super) fn task(&self, name: &'static str) -> Result<Option<TaskId>, ApiError> {
        self.get(name)
            .map(TaskId::parse)
            .transpose()
            .map_err(|error| ApiError::invalid(name, ErrorReason::InvalidId, error))
    }

    fn time(&self, name: &'static str) -> Result<Option<Timestamp>, ApiError> {
        self.get(name)
            .map(|text| match text.parse::<i64>() {
                Ok(millis) => Timestamp::from_millis(millis).map_err(|error| error.to_string()),
                Err(_) => Time::parse(text).map(Timestamp::from),
            })
            .transpose()
            .map_err(|error| ApiError::invalid(name, ErrorReason::InvalidValue, error))
    }

    /// `order`.
    fn order(&self) -> Result<ListOrder, ApiError> {
        let order = self.get("order").map(str::parse).transpose();
        let order = order.map_err(|message: String| {
            ApiError::invalid("order", ErrorReason::InvalidValue, message)
        })?;
        Ok(order.unwrap_or_default())
    }

    /// The tasks that a list asks for; `None` when no task can be among them.
    pub(super) fn list(&self, job: JobName) -> Result<Option<ListQuery>, ApiError> {
        let states: BTreeSet<StateKind> = self
            .all("state")
            .flat_map(|list| list.split(','))
            .map(|name| name.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|error| ApiError::invalid("state", ErrorReason::InvalidValue, error))?;
        let statuses: BTreeSet<StateKind> = self
            .all("status")
            .flat_map(|list| list.split(','))
            .map(|name| of_status(name.trim()))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect();
        let wanted: BTreeSet<StateKind> = match (states.is_empty(), statuses.is_empty()) {
            (_, true) => states,
            (true, false) => statuses,
            (false, false) => states.intersection(&statuses).copied().collect(),
        };
        let asked = self.get("state").is_some() || self.get("status").is_some();
        if asked && wanted.is_empty() {
            return Ok(None);
        }
        let text = |name| self.get(name).map(Arc::from);
        Ok(Some(ListQuery {
            states: wanted.into_iter().collect(),
            tag: text("tag"),
            name: text("name"),
            key: text("key"),
            due_from: self.time("due_from")?,
            due_before: self.time("due_before")?,
            schedule: self.schedule("schedule")?,
            order: self.order()?,
            cursor: text("cursor"),
            limit: self.limit(),
            ..ListQuery::of(job)
        }))
    }
}

fn of_status(name: &str) -> Result<Vec<StateKind>, ApiError> {
    let all = StateKind::ALL.into_iter();
    let states: Vec<StateKind> = all.filter(|kind| kind.coarse().name() == name).collect();
    if states.is_empty() {
        let message = format!(
            "unknown status '{name:.64}'; known are pending, running, succeeded, failed, cancelled"
        );
        return Err(ApiError::invalid(
            "status",
            ErrorReason::InvalidValue,
            message,
        ));
    }
    Ok(states)
}

/// A duration such as `30s`, `1.5m`, `250ms` or `2h`; a bare number is milliseconds.
fn duration(text: &str) -> Result<Duration, ApiError> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match &text[digits.len()..] {
        "" | "ms" => 1.0,
        "s" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3600e3,
        _ => f64::NAN,
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = digits.parse::<f64>().ok().filter(|_| plain);
    number
        .map(|number| number * unit_ms / 1000.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            let message = "must be a duration such as 30s, 250ms or 1m";
            ApiError::invalid("wait", ErrorReason::InvalidValue, message)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_bare_numbers_are_milliseconds() {
        for (text, ms) in [
            ("30s", 30_000),
            ("250ms", 250),
            ("250", 250),
            ("0.1s", 100),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text).unwrap().as_millis(), ms, "{text}");
        }
        for bad in ["", "s", "-1s", "1d", "1e3s", "inf", "NaNs", "1 s x", "9e99"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    fn list(query: &str) -> Result<Option<ListQuery>, ApiError> {
        let uri: Uri = format!("/?{query}").parse().unwrap();
        let known = ["state", "status", "limit", "due_from", "tag"];
        Query::of(&uri, &known)?.list(JobName::parse("j").unwrap())
    }

    #[test]
    fn states_are_repeated_or_listed_and_narrowed_by_the_status() {
        use StateKind::*;
        let states = |query| list(query).unwrap().map(|list| list.states);
        assert_eq!(states("tag=a%20b"), Some(vec![]));
        assert_eq!(
            states("state=new,failed&state=claimed"),
            Some(vec![New, Claimed, Failed])
        );
        assert_eq!(states("status=running"), Some(vec![Claimed, Processing]));
        assert_eq!(
            states("status=failed&state=new,trashed"),
            Some(vec![Trashed])
        );
        assert_eq!(states("status=failed&state=new"), None);
        let query = list("due_from=1970-01-01T00:00:01Z").unwrap().unwrap();
        assert_eq!(query.due_from, Some(Timestamp::clamped(1_000)));
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_with_its_name() {
        for (query, field) in [
            ("state=done", "state"),
            ("state=", "state"),
            ("status=new", "status"),
            ("due_from=soon", "due_from"),
            ("colour=red", "colour"),
        ] {
            let error = list(query).unwrap_err();
            assert_eq!(error.field(), Some(field), "{query}");
        }
    }
}
